//! Functions that give the value of another row.

use std::ops::Range;

use eris_storage::{Bitmap, Column};

use super::Runner;
use super::frame::Frames;
use super::numbers::integer;
use crate::error::OperatorError;

/// Which row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pick<'a> {
    /// So many rows before, or behind if `ahead`; the default of rows without such a row.
    Shift { offset: Option<&'a Column>, default: Option<&'a Column>, ahead: bool },
    /// The first of the frame.
    First,
    /// The last of the frame.
    Last,
    /// One of the frame, from 1.
    Nth(&'a Column),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Picks<'a> {
    pub pick: Pick<'a>,
    pub values: &'a Column,
    pub frames: Frames<'a>,
}

/// What a row gets.
enum Picked {
    Row(usize),
    Default,
    Null,
}

impl Picks<'_> {
    fn picked(&mut self, row: usize) -> Result<Picked, OperatorError> {
        let frame = match self.pick {
            Pick::Shift { offset, ahead, .. } => {
                let partition = self.frames.place(row).partition.clone();
                let offset = match offset {
                    None => Some(1),
                    Some(offset) => integer(offset, row)?,
                };
                let Some(offset) = offset else { return Ok(Picked::Null) };
                let target = row as i128 + if ahead { i128::from(offset) } else { -i128::from(offset) };
                let target = usize::try_from(target).ok().filter(|target| partition.contains(target));
                return Ok(target.map_or(Picked::Default, Picked::Row));
            }
            Pick::First | Pick::Last | Pick::Nth(_) => self.frames.of(row),
        };
        let chosen = match self.pick {
            Pick::First => Some(0),
            Pick::Last => frame.len().checked_sub(1),
            Pick::Nth(number) => match integer(number, row)? {
                None => None,
                Some(number) if number <= 0 => return Err(OperatorError::NotPositive { function: "nth_value" }),
                Some(number) => Some(number as usize - 1),
            },
            Pick::Shift { .. } => unreachable!("a shift does not look at the frame"),
        };
        Ok(match chosen {
            Some(chosen) if chosen < frame.len() => Picked::Row(frame.start + chosen),
            _ => Picked::Null,
        })
    }
}

impl Runner for Picks<'_> {
    fn column(&mut self, rows: Range<usize>) -> Result<Column, OperatorError> {
        let (mut chosen, mut defaults) = (Vec::with_capacity(rows.len()), Vec::new());
        let mut valid = Vec::with_capacity(rows.len());
        for (at, row) in rows.clone().enumerate() {
            let picked = self.picked(row)?;
            valid.push(!matches!(picked, Picked::Null));
            chosen.push(match picked {
                Picked::Row(row) => row as u32,
                Picked::Default => {
                    defaults.push(at);
                    0
                }
                Picked::Null => 0,
            });
        }
        let default = match self.pick {
            Pick::Shift { default, .. } => default,
            Pick::First | Pick::Last | Pick::Nth(_) => None,
        };
        let column = match default {
            Some(default) if !defaults.is_empty() => {
                // Picked values, then those of the defaults: each row takes one.
                let own = self.values.take(&chosen);
                let count = own.len();
                let both = Column::concat(&[own, default.slice(rows.start, count)]);
                let mut order: Vec<u32> = (0..count as u32).collect();
                for at in &defaults {
                    order[*at] += count as u32;
                }
                both.take(&order)
            }
            Some(_) => self.values.take(&chosen),
            None => {
                for at in &defaults {
                    valid[*at] = false;
                }
                self.values.take(&chosen)
            }
        };
        if valid.iter().all(|valid| *valid) {
            return Ok(column.without_idle_validity());
        }
        let validity: Bitmap = valid.iter().enumerate().map(|(row, valid)| *valid && !column.is_null(row)).collect();
        Ok(Column { validity: Some(validity), ..column })
    }
}

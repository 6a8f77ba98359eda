//! How an operator may get at values whose storage it does not know (004, section 5.2.2): the sum of one attribute
//!
//! * *virtual*: a call through a table of functions for each value;
//! * *static*: the storage is known, the call is not inlined;
//! * *inline*: the storage is known and the call dissolves, which is as good as direct access;
//! * *buffered*: one virtual call fills a buffer, the operator reads the buffer;
//! * *shared*: ERIS's frozen columns: one virtual call hands out a run of the storage itself.
//!
//! Columns, and rows with one attribute (small) or eight more of its size (big).

use crate::report::{Report, number, text};
use std::hint::black_box;

/// Values of a buffer.
const BUFFERS: [usize; 8] = [64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192];
/// The number of values in a batch of ERIS.
const BATCH_ROWS: usize = 2_048;

/// A field as it is stored.
trait Element: Copy + Default + 'static {
    const BYTES: usize;
    fn of(number: usize) -> Self;
    fn widened(self) -> i64;
}

impl Element for i64 {
    const BYTES: usize = 8;

    fn of(number: usize) -> Self {
        number as Self
    }

    #[inline]
    fn widened(self) -> i64 {
        self
    }
}

impl Element for i8 {
    const BYTES: usize = 1;

    fn of(number: usize) -> Self {
        number as Self
    }

    #[inline]
    fn widened(self) -> i64 {
        i64::from(self)
    }
}

/// Storage an operator knows as this only.
trait Storage<T> {
    /// One value, for the virtual method.
    fn value(&self, row: usize) -> T;
    /// Some values, for the buffered method.
    fn fill(&self, from: usize, buffer: &mut [T]);
    /// A run of the storage itself, if there is one.
    fn shared(&self, from: usize, rows: usize) -> Option<&[T]>;
}

/// Storage an operator knows exactly.
trait Known<T> {
    fn inlined(&self, row: usize) -> T;
    fn called(&self, row: usize) -> T;
    fn rows(&self) -> usize;
}

struct ColumnStorage<T>(Vec<T>);

/// Rows of `stride` fields; the first is read.
struct RowStorage<T> {
    fields: Vec<T>,
    stride: usize,
}

macro_rules! storage {
    ($storage:ident, |$self:ident, $row:ident| $value:expr, $rows:expr, |$from:ident, $count:ident| $shared:expr) => {
        impl<T: Element> Known<T> for $storage<T> {
            #[inline(always)]
            fn inlined(&$self, $row: usize) -> T {
                $value
            }

            #[inline(never)]
            fn called(&$self, $row: usize) -> T {
                $value
            }

            fn rows(&$self) -> usize {
                $rows
            }
        }

        impl<T: Element> Storage<T> for $storage<T> {
            fn value(&self, row: usize) -> T {
                self.inlined(row)
            }

            fn fill(&self, from: usize, buffer: &mut [T]) {
                for (at, value) in buffer.iter_mut().enumerate() {
                    *value = self.inlined(from + at);
                }
            }

            fn shared(&$self, $from: usize, $count: usize) -> Option<&[T]> {
                $shared
            }
        }
    };
}

storage!(ColumnStorage, |self, row| self.0[row], self.0.len(), |from, rows| Some(&self.0[from..from + rows]));
storage!(RowStorage, |self, row| self.fields[row * self.stride], self.fields.len() / self.stride, |_from, _rows| None);

/// One of the ways.
trait Method<T: Element> {
    fn name(&self) -> String;
    /// None: the storage does not offer it.
    fn sum<S: Storage<T> + Known<T>>(&self, storage: &S) -> Option<u64>;
}

struct Virtual;
struct Static;
struct Inline;
struct Buffered(usize);
struct Shared;

impl<T: Element> Method<T> for Virtual {
    fn name(&self) -> String {
        "virtual".to_owned()
    }

    fn sum<S: Storage<T> + Known<T>>(&self, storage: &S) -> Option<u64> {
        let unknown: &dyn Storage<T> = black_box(storage);
        Some((0..storage.rows()).map(|row| unknown.value(row).widened()).fold(0, i64::wrapping_add) as u64)
    }
}

impl<T: Element> Method<T> for Static {
    fn name(&self) -> String {
        "static".to_owned()
    }

    fn sum<S: Storage<T> + Known<T>>(&self, storage: &S) -> Option<u64> {
        Some((0..storage.rows()).map(|row| storage.called(row).widened()).fold(0, i64::wrapping_add) as u64)
    }
}

impl<T: Element> Method<T> for Inline {
    fn name(&self) -> String {
        "inline".to_owned()
    }

    fn sum<S: Storage<T> + Known<T>>(&self, storage: &S) -> Option<u64> {
        Some((0..storage.rows()).map(|row| storage.inlined(row).widened()).fold(0, i64::wrapping_add) as u64)
    }
}

impl<T: Element> Method<T> for Buffered {
    fn name(&self) -> String {
        format!("buffered {}", self.0)
    }

    fn sum<S: Storage<T> + Known<T>>(&self, storage: &S) -> Option<u64> {
        let unknown: &dyn Storage<T> = black_box(storage);
        let mut buffer = vec![T::default(); self.0];
        let mut total = 0_i64;
        for from in (0..storage.rows()).step_by(self.0) {
            let rows = self.0.min(storage.rows() - from);
            unknown.fill(from, &mut buffer[..rows]);
            total = black_box(&buffer[..rows]).iter().map(|value| value.widened()).fold(total, i64::wrapping_add);
        }
        Some(total as u64)
    }
}

impl<T: Element> Method<T> for Shared {
    fn name(&self) -> String {
        format!("shared {BATCH_ROWS}")
    }

    fn sum<S: Storage<T> + Known<T>>(&self, storage: &S) -> Option<u64> {
        let unknown: &dyn Storage<T> = black_box(storage);
        let mut total = 0_i64;
        for from in (0..storage.rows()).step_by(BATCH_ROWS) {
            let values = unknown.shared(from, BATCH_ROWS.min(storage.rows() - from))?;
            total = values.iter().map(|value| value.widened()).fold(total, i64::wrapping_add);
        }
        Some(total as u64)
    }
}

fn measure<T: Element, S: Storage<T> + Known<T>>(name: &str, storage: &S, report: &mut Report) {
    let rows = storage.rows() as f64;
    let direct = Method::<T>::sum(&Inline, storage);
    let mut inline = 0.0;
    let mut one = |method: &dyn Fn() -> Option<u64>, label: String, report: &mut Report| {
        if method().is_none() {
            return;
        }
        assert_eq!(method(), direct, "{label} of {name}");
        let nanos = report.best(|| method().unwrap()) / rows;
        if label == "inline" {
            inline = nanos;
        }
        report.add(&[
            text("part", "access methods"),
            text("storage", name),
            text("method", &label),
            number("field_bytes", T::BYTES as f64),
            number("rows", rows),
            number("ns", nanos),
            number("overhead_percent", (nanos / inline - 1.0) * 100.0),
        ]);
    };
    one(&|| Method::<T>::sum(&Inline, storage), Method::<T>::name(&Inline), report);
    one(&|| Method::<T>::sum(&Static, storage), Method::<T>::name(&Static), report);
    one(&|| Method::<T>::sum(&Virtual, storage), Method::<T>::name(&Virtual), report);
    one(&|| Method::<T>::sum(&Shared, storage), Method::<T>::name(&Shared), report);
    for size in BUFFERS {
        let method = Buffered(size);
        one(&|| Method::<T>::sum(&method, storage), Method::<T>::name(&method), report);
    }
}

fn fields<T: Element>(bytes: usize, report: &mut Report) {
    let values = bytes / T::BYTES;
    measure("column", &ColumnStorage((0..values).map(T::of).collect()), report);
    for (name, stride) in [("row small", 1), ("row big", 9)] {
        let rows = RowStorage { fields: (0..values / stride * stride).map(T::of).collect(), stride };
        measure(name, &rows, report);
    }
}

/// Eight bytes of data for each of `elements`.
pub fn run(elements: usize, report: &mut Report) {
    fields::<i64>(elements * 8, report);
    fields::<i8>(elements * 8, report);
}

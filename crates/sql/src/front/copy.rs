//! COPY ... FROM: options in both spellings.

use super::command::{Command, CopyCommand, CopyFormat, CopySource};
use super::names::{fold, fold_all, table_name};
use super::{Lowered, refuse_if};
use crate::ast::{self, CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopyTarget};
use crate::errors::{SqlError, SqlState};

#[derive(Default)]
struct Options {
    csv: bool,
    delimiter: Option<char>,
    quote: Option<char>,
    escape: Option<char>,
    null: Option<String>,
    header: bool,
}

pub(super) fn lower(
    source: &ast::CopySource,
    to: bool,
    target: &CopyTarget,
    options: &[CopyOption],
    legacy: &[CopyLegacyOption],
    values: &[Option<String>],
) -> Lowered<Command> {
    refuse_if(to, "COPY ... TO", "Run the SELECT and let the client write the file.")?;
    refuse_if(values.iter().any(Option::is_some), "data inside the statement", "Send it after the statement.")?;
    let ast::CopySource::Table { table_name: name, columns } = source else {
        return Err(SqlError::unsupported("COPY (query)", "Run the SELECT."));
    };
    let source = match target {
        CopyTarget::Stdin => CopySource::Stdin,
        CopyTarget::File { filename } => CopySource::File(filename.clone()),
        CopyTarget::Program { .. } => {
            return Err(SqlError::unsupported("COPY FROM PROGRAM", "Pipe the program into COPY FROM STDIN."));
        }
        CopyTarget::Stdout => return Err(SqlError::syntax("STDOUT", None)),
    };
    let mut known = Options::default();
    for (position, option) in options.iter().enumerate() {
        let kind = std::mem::discriminant(option);
        if options[..position].iter().any(|other| std::mem::discriminant(other) == kind) {
            return Err(SqlError::new(SqlState::SYNTAX, "conflicting or redundant options"));
        }
        known.option(option)?;
    }
    legacy.iter().try_for_each(|option| known.legacy(option))?;
    Ok(Command::Copy(CopyCommand {
        table: table_name(name)?,
        columns: fold_all(columns)?,
        source,
        format: known.format()?,
    }))
}

impl Options {
    fn option(&mut self, option: &CopyOption) -> Lowered<()> {
        match option {
            CopyOption::Format(format) => match fold(format)?.as_str() {
                "csv" => self.csv = true,
                "text" => self.csv = false,
                "binary" => return Err(SqlError::unsupported("COPY format \"binary\"", "Use csv or text.")),
                other => {
                    let message = format!("COPY format \"{other}\" not recognized");
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).hint("Use csv or text."));
                }
            },
            // FREEZE promises that nobody else sees the table; nothing here depends on it.
            CopyOption::Freeze(freeze) => refuse_if(*freeze, "FREEZE", "Leave it out.")?,
            CopyOption::Delimiter(c) => self.delimiter = Some(*c),
            CopyOption::Null(text) => self.null = Some(text.clone()),
            CopyOption::Header(header) => self.header = *header,
            CopyOption::Quote(c) => self.quote = Some(*c),
            CopyOption::Escape(c) => self.escape = Some(*c),
            CopyOption::ForceQuote(_) | CopyOption::ForceNotNull(_) | CopyOption::ForceNull(_) => {
                return Err(SqlError::unsupported("FORCE_QUOTE, FORCE_NULL, FORCE_NOT_NULL", "Leave them out."));
            }
            CopyOption::Encoding(name) => {
                let utf8 = matches!(name.to_lowercase().replace(['-', '_'], "").as_str(), "utf8" | "unicode");
                refuse_if(!utf8, &format!("encoding \"{name}\""), "Convert the data to UTF-8.")?;
            }
        }
        Ok(())
    }

    fn legacy(&mut self, option: &CopyLegacyOption) -> Lowered<()> {
        match option {
            CopyLegacyOption::Csv(options) => {
                self.csv = true;
                for option in options {
                    match option {
                        CopyLegacyCsvOption::Header => self.header = true,
                        CopyLegacyCsvOption::Quote(c) => self.quote = Some(*c),
                        CopyLegacyCsvOption::Escape(c) => self.escape = Some(*c),
                        CopyLegacyCsvOption::ForceQuote(_) | CopyLegacyCsvOption::ForceNotNull(_) => {
                            return Err(SqlError::unsupported("FORCE QUOTE and FORCE NOT NULL", "Leave them out."));
                        }
                    }
                }
            }
            CopyLegacyOption::Delimiter(c) => self.delimiter = Some(*c),
            CopyLegacyOption::Null(text) => self.null = Some(text.clone()),
            CopyLegacyOption::Header => self.header = true,
            CopyLegacyOption::Binary => {
                return Err(SqlError::unsupported("binary COPY", "Use csv or text."));
            }
            other => return Err(SqlError::unsupported(format!("the COPY option {other}"), "Leave it out.")),
        }
        Ok(())
    }

    fn format(self) -> Lowered<CopyFormat> {
        let byte = |name: &str, c: Option<char>, default: u8| match c {
            None => Ok(default),
            Some(c) if c.is_ascii() && c != '\n' && c != '\r' && c != '\0' => Ok(c as u8),
            Some(_) => Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("COPY {name} must be a single one-byte character"),
            )),
        };
        if !self.csv && (self.quote.is_some() || self.escape.is_some()) {
            return Err(SqlError::unsupported("QUOTE or ESCAPE outside CSV", "Add FORMAT csv."));
        }
        let delimiter = byte("delimiter", self.delimiter, if self.csv { b',' } else { b'\t' })?;
        let quote = byte("quote", self.quote, b'"')?;
        let escape = byte("escape", self.escape, quote)?;
        if self.csv && delimiter == quote {
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "COPY delimiter and quote must be different"));
        }
        if self.null.as_ref().is_some_and(|null| null.contains(['\n', '\r'])) {
            let message = "COPY null representation cannot use newline or carriage return";
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        let null = self.null.unwrap_or_else(|| if self.csv { String::new() } else { "\\N".to_string() });
        Ok(CopyFormat { csv: self.csv, delimiter, quote, escape, null, header: self.header })
    }
}

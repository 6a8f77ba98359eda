//! Messages from the client: strict decoding of one complete message body, borrowing from it.
//!
//! The bytes come from outside and nothing is believed: every count is checked against what is left of the body before
//! anything is allocated, text must be UTF-8, and a body must be used up exactly. The tests write these messages with
//! another codec, the one of the crate `postgres-protocol`.

use crate::protocol::report::{Report, SqlState};

/// How a value travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Binary,
}

impl Format {
    pub fn code(self) -> i16 {
        match self {
            Format::Text => 0,
            Format::Binary => 1,
        }
    }
}

/// What a Close or Describe is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Statement,
    Portal,
}

/// The types of message that a client may send after the start-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Query,
    Parse,
    Bind,
    Describe,
    Execute,
    Close,
    Flush,
    Sync,
    CopyData,
    CopyDone,
    CopyFail,
    FunctionCall,
    Terminate,
}

impl Kind {
    pub fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            b'Q' => Kind::Query,
            b'P' => Kind::Parse,
            b'B' => Kind::Bind,
            b'D' => Kind::Describe,
            b'E' => Kind::Execute,
            b'C' => Kind::Close,
            b'H' => Kind::Flush,
            b'S' => Kind::Sync,
            b'd' => Kind::CopyData,
            b'c' => Kind::CopyDone,
            b'f' => Kind::CopyFail,
            b'F' => Kind::FunctionCall,
            b'X' => Kind::Terminate,
            _ => return None,
        })
    }

    /// Messages of the extended protocol: after an error they are skipped until Sync.
    pub fn is_extended(self) -> bool {
        matches!(self, Kind::Parse | Kind::Bind | Kind::Describe | Kind::Execute | Kind::Close | Kind::Flush)
    }
}

/// A run of format codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formats {
    /// None means text for all, one means that one for all.
    All(Format),
    Each(Box<[Format]>),
}

impl Default for Formats {
    fn default() -> Self {
        Formats::All(Format::Text)
    }
}

impl Formats {
    pub fn of(&self, index: usize) -> Format {
        match self {
            Formats::All(format) => *format,
            Formats::Each(formats) => formats.get(index).copied().unwrap_or(Format::Text),
        }
    }

    /// The length of a run that does not fit `count` values.
    pub fn misfit(&self, count: usize) -> Option<usize> {
        match self {
            Formats::Each(formats) if formats.len() != count => Some(formats.len()),
            _ => None,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Parse<'a> {
    pub name: &'a str,
    pub sql: &'a str,
    /// Zero leaves the type to the server.
    pub parameter_types: Vec<u32>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Bind<'a> {
    pub portal: &'a str,
    pub statement: &'a str,
    pub parameter_formats: Formats,
    pub parameters: Vec<Option<&'a [u8]>>,
    pub result_formats: Formats,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Named<'a> {
    pub target: Target,
    pub name: &'a str,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Execute<'a> {
    pub portal: &'a str,
    /// `None` is "all".
    pub row_limit: Option<u32>,
}

pub fn query(body: &[u8]) -> Result<&str, Report> {
    let mut reader = Reader { rest: body };
    let sql = reader.text()?;
    reader.end()?;
    Ok(sql)
}

pub fn parse(body: &[u8]) -> Result<Parse<'_>, Report> {
    let mut reader = Reader { rest: body };
    let name = reader.text()?;
    let sql = reader.text()?;
    let parameter_types = reader.run(4, Reader::word)?;
    reader.end()?;
    Ok(Parse { name, sql, parameter_types })
}

pub fn bind(body: &[u8]) -> Result<Bind<'_>, Report> {
    let mut reader = Reader { rest: body };
    let portal = reader.text()?;
    let statement = reader.text()?;
    let parameter_formats = reader.formats()?;
    let parameters = reader.run(4, Reader::value)?;
    let result_formats = reader.formats()?;
    reader.end()?;
    Ok(Bind { portal, statement, parameter_formats, parameters, result_formats })
}

/// Body of a Describe or a Close.
pub fn named(body: &[u8]) -> Result<Named<'_>, Report> {
    let mut reader = Reader { rest: body };
    let target = match reader.take(1)? {
        b"S" => Target::Statement,
        b"P" => Target::Portal,
        other => {
            return Err(Report::protocol(format!("invalid target {}: expected 'S' or 'P'", other[0].escape_ascii())));
        }
    };
    let name = reader.text()?;
    reader.end()?;
    Ok(Named { target, name })
}

pub fn execute(body: &[u8]) -> Result<Execute<'_>, Report> {
    let mut reader = Reader { rest: body };
    let portal = reader.text()?;
    let limit = reader.word()? as i32;
    reader.end()?;
    Ok(Execute { portal, row_limit: (limit > 0).then_some(limit as u32) })
}

pub fn copy_fail(body: &[u8]) -> Result<&str, Report> {
    query(body)
}

pub fn empty(body: &[u8]) -> Result<(), Report> {
    Reader { rest: body }.end()
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Report> {
        let Some((head, rest)) = self.rest.split_at_checked(count) else {
            return Err(Report::protocol("insufficient data left in message"));
        };
        self.rest = rest;
        Ok(head)
    }

    fn half(&mut self) -> Result<u16, Report> {
        Ok(self.take(2)?.iter().fold(0, |word, byte| word << 8 | u16::from(*byte)))
    }

    fn word(&mut self) -> Result<u32, Report> {
        Ok(self.take(4)?.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    }

    /// A zero-terminated string.
    fn text(&mut self) -> Result<&'a str, Report> {
        let Some(end) = self.rest.iter().position(|byte| *byte == 0) else {
            return Err(Report::protocol("invalid string in message: it does not end"));
        };
        let bytes = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        utf8(bytes)
    }

    /// A count of elements that take at least `element_bytes_min` each.
    fn count(&mut self, element_bytes_min: usize) -> Result<usize, Report> {
        let count = usize::from(self.half()?);
        if count * element_bytes_min > self.rest.len() {
            return Err(Report::protocol(format!("message announces {count} elements and is too short for them")));
        }
        Ok(count)
    }

    /// A count and as many elements.
    fn run<T>(
        &mut self,
        element_bytes_min: usize,
        element: impl FnMut(&mut Self) -> Result<T, Report>,
    ) -> Result<Vec<T>, Report> {
        let count = self.count(element_bytes_min)?;
        self.elements(count, element)
    }

    fn elements<T>(
        &mut self,
        count: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, Report>,
    ) -> Result<Vec<T>, Report> {
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    fn format(&mut self) -> Result<Format, Report> {
        match self.half()? {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            other => Err(Report::error(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("unsupported format code: {}", other as i16),
            )),
        }
    }

    fn formats(&mut self) -> Result<Formats, Report> {
        Ok(match self.count(2)? {
            0 => Formats::All(Format::Text),
            1 => Formats::All(self.format()?),
            count => Formats::Each(self.elements(count, Self::format)?.into_boxed_slice()),
        })
    }

    fn value(&mut self) -> Result<Option<&'a [u8]>, Report> {
        match self.word()? as i32 {
            -1 => Ok(None),
            length if length < 0 => Err(Report::protocol(format!("invalid length {length} of a parameter"))),
            length => self.take(length as usize).map(Some),
        }
    }

    fn end(&self) -> Result<(), Report> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(Report::protocol(format!("invalid message format: {} bytes too many", self.rest.len())))
    }
}

/// Text from outside.
pub fn utf8(bytes: &[u8]) -> Result<&str, Report> {
    std::str::from_utf8(bytes).map_err(|error| {
        let from = error.valid_up_to();
        let until = from + error.error_len().unwrap_or(bytes.len() - from).max(1);
        let shown: Vec<String> = bytes[from..until].iter().map(|byte| format!("0x{byte:02x}")).collect();
        Report::error(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_is_read_whole() {
        let body = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\x02\0\0\0\x01";
        let bind = bind(body).unwrap();
        assert_eq!((bind.portal, bind.statement), ("p", "s"));
        assert_eq!(bind.parameters, vec![Some(&b"ab"[..]), None]);
        assert_eq!(bind.parameter_formats.of(1), Format::Binary, "one code counts for all");
        assert_eq!((bind.result_formats.of(0), bind.result_formats.of(1)), (Format::Text, Format::Binary));
    }

    #[test]
    fn runs_of_formats_fit_or_tell_their_length() {
        let run = |body: &[u8]| Reader { rest: body }.formats().unwrap();
        let (none, one) = (run(b"\0\0"), run(b"\0\x01\0\x01"));
        assert_eq!((none.of(7), none.misfit(0), none.misfit(7)), (Format::Text, None, None));
        assert_eq!((one.of(7), one.misfit(0), one.misfit(7)), (Format::Binary, None, None));
        let three = run(b"\0\x03\0\0\0\x01\0\0");
        assert_eq!([0, 1, 2].map(|index| three.of(index)), [Format::Text, Format::Binary, Format::Text]);
        assert_eq!([2, 3, 4].map(|count| three.misfit(count)), [Some(3), None, Some(3)]);
        let refused = Reader { rest: b"\0\x01\0\x02" }.formats().unwrap_err();
        assert_eq!(refused.sqlstate, SqlState::INVALID_PARAMETER_VALUE);
    }

    #[test]
    fn every_truncation_is_an_error_and_not_a_panic() {
        let body = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\x02\0\0\0\x01";
        for end in 0..body.len() {
            assert_eq!(bind(&body[..end]).unwrap_err().sqlstate, SqlState::PROTOCOL_VIOLATION, "cut at {end}");
        }
        let mut longer = body.to_vec();
        longer.push(0);
        assert_eq!(bind(&longer).unwrap_err().sqlstate, SqlState::PROTOCOL_VIOLATION);
    }

    #[test]
    fn counts_are_checked_before_allocation() {
        assert!(parse(b"\0select 1\0\xff\xff").unwrap_err().message.contains("65535"));
    }

    #[test]
    fn bytes_that_are_not_text_are_named() {
        let error = query(b"select '\xc3\x28'\0").unwrap_err();
        assert_eq!(error.sqlstate, SqlState::CHARACTER_NOT_IN_REPERTOIRE);
        assert!(error.message.ends_with("0xc3"), "{}", error.message);
    }
}

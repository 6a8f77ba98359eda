//! The beginning of a connection: requests for encryption (refused), cancel requests, the start-up packet.

use std::collections::BTreeMap;

use crate::protocol::frontend::utf8;
use crate::protocol::report::{Report, SqlState};

/// The one user there is until authentication exists.
pub const USER: &str = "eris";
/// The one database.
pub const DATABASE: &str = "eris";

const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// A packet before a session exists.
#[derive(Debug, PartialEq, Eq)]
pub enum Packet {
    EncryptionRequest,
    CancelRequest { process: u32, secret: u32 },
    Startup(Startup),
}

/// What a client asks for at the start.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Startup {
    /// Minor version of protocol 3.
    pub minor_version: u16,
    /// Parameters as sent, in order of their names.
    pub parameters: BTreeMap<String, String>,
}

impl Startup {
    /// Protocol options (`_pq_.`): none is understood.
    pub fn protocol_options(&self) -> Vec<&str> {
        self.parameters.keys().map(String::as_str).filter(|name| name.starts_with("_pq_.")).collect()
    }

    pub fn application_name(&self) -> &str {
        self.parameters.get("application_name").map_or("", String::as_str)
    }

    /// Refuses whom and what we do not serve.
    pub fn check(&self) -> Result<(), Report> {
        let Some(user) = self.parameters.get("user") else {
            return Err(Report::fatal(
                SqlState::INVALID_AUTHORIZATION,
                "no PostgreSQL user name specified in startup packet",
            ));
        };
        if user != USER {
            return Err(Report::fatal(SqlState::INVALID_AUTHORIZATION, format!("role \"{user}\" does not exist"))
                .with_hint(format!("The one user is \"{USER}\"; it needs no password.")));
        }
        let database = self.parameters.get("database").filter(|name| !name.is_empty()).unwrap_or(user);
        if database != DATABASE {
            return Err(Report::fatal(
                SqlState::INVALID_CATALOG_NAME,
                format!("database \"{database}\" does not exist"),
            )
            .with_hint(format!("The one database is \"{DATABASE}\".")));
        }
        if self.parameters.contains_key("replication") {
            return Err(Report::fatal(SqlState::FEATURE_NOT_SUPPORTED, "replication connections are not supported"));
        }
        if let Some(encoding) = self.parameters.get("client_encoding")
            && !is_utf8(encoding)
        {
            return Err(Report::fatal(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("client_encoding \"{encoding}\" is not supported: text is UTF8"),
            ));
        }
        Ok(())
    }

    /// Settings that the client asks for, as parameters of their own or as `options` (`-c name=value`).
    pub fn settings(&self) -> Result<Vec<(String, String)>, Report> {
        let mut settings = Vec::new();
        for (name, value) in &self.parameters {
            match name.as_str() {
                "user" | "database" | "replication" | "client_encoding" | "application_name" => (),
                "options" => command_line_settings(value, &mut settings)?,
                name if name.starts_with("_pq_.") => (),
                name => settings.push((name.to_owned(), value.clone())),
            }
        }
        Ok(settings)
    }
}

/// `SQL_ASCII` is what a client in the C locale asks for: bytes as they are, which UTF-8 satisfies.
fn is_utf8(encoding: &str) -> bool {
    let plain: String = encoding.chars().filter(char::is_ascii_alphanumeric).collect();
    ["utf8", "unicode", "sqlascii"].iter().any(|name| plain.eq_ignore_ascii_case(name))
}

fn command_line_settings(options: &str, settings: &mut Vec<(String, String)>) -> Result<(), Report> {
    let mut words = options.split_ascii_whitespace();
    while let Some(word) = words.next() {
        let assignment = match word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            Some("") => words.next(),
            other => other,
        };
        let Some((name, value)) = assignment.and_then(|text| text.split_once('=')) else {
            return Err(Report::fatal(SqlState::SYNTAX_ERROR, format!("invalid command-line argument: {word}"))
                .with_hint("Options have the form -c name=value."));
        };
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(())
}

/// Reads the body of a packet (without its length).
pub fn packet(body: &[u8]) -> Result<Packet, Report> {
    let (version, rest) = word(body)?;
    match version {
        SSL_REQUEST | GSS_REQUEST if rest.is_empty() => return Ok(Packet::EncryptionRequest),
        CANCEL_REQUEST if rest.len() == 8 => {
            let (process, rest) = word(rest)?;
            let (secret, _) = word(rest)?;
            return Ok(Packet::CancelRequest { process, secret });
        }
        _ => (),
    }
    let (major, minor) = ((version >> 16) as u16, version as u16);
    if major != 3 {
        return Err(Report::fatal(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("unsupported frontend protocol {major}.{minor}: server supports 3.0"),
        ));
    }
    let mut parameters = BTreeMap::new();
    let mut rest = rest;
    loop {
        let (name, after_name) = string(rest)?;
        if name.is_empty() {
            if !after_name.is_empty() {
                return Err(invalid());
            }
            return Ok(Packet::Startup(Startup { minor_version: minor, parameters }));
        }
        let (value, after_value) = string(after_name)?;
        parameters.insert(name.to_owned(), value.to_owned());
        rest = after_value;
    }
}

fn word(bytes: &[u8]) -> Result<(u32, &[u8]), Report> {
    let (head, rest) = bytes.split_at_checked(4).ok_or_else(invalid)?;
    Ok((head.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)), rest))
}

fn string(bytes: &[u8]) -> Result<(&str, &[u8]), Report> {
    let end = bytes.iter().position(|byte| *byte == 0).ok_or_else(invalid)?;
    Ok((utf8(&bytes[..end]).map_err(fatal)?, &bytes[end + 1..]))
}

fn invalid() -> Report {
    Report::fatal(SqlState::PROTOCOL_VIOLATION, "invalid startup packet layout: expected terminator as last byte")
}

fn fatal(report: Report) -> Report {
    Report { severity: crate::protocol::report::Severity::Fatal, ..report }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn startup(pairs: &[(&str, &str)]) -> Startup {
        Startup {
            minor_version: 0,
            parameters: pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        }
    }

    #[test]
    fn packets_are_told_apart() {
        assert_eq!(packet(&SSL_REQUEST.to_be_bytes()).unwrap(), Packet::EncryptionRequest);
        let cancel = [CANCEL_REQUEST, 7, 9].map(u32::to_be_bytes).concat();
        assert_eq!(packet(&cancel).unwrap(), Packet::CancelRequest { process: 7, secret: 9 });
        let Packet::Startup(read) = packet(b"\0\x03\0\0user\0eris\0\0").unwrap() else { panic!("a start-up") };
        assert_eq!(read, startup(&[("user", "eris")]));
        assert_eq!(packet(b"\0\x02\0\0").unwrap_err().sqlstate, SqlState::FEATURE_NOT_SUPPORTED);
        for broken in [&b"\0\x03\0\0user\0eris"[..], b"\0\x03\0\0user\0eris\0\0x", b"\0\x03\0\0", b"\0\x03"] {
            assert_eq!(packet(broken).unwrap_err().sqlstate, SqlState::PROTOCOL_VIOLATION, "{broken:?}");
        }
    }

    #[test]
    fn strangers_are_refused() {
        assert!(startup(&[("user", "eris")]).check().is_ok());
        let cases: [(&[(&str, &str)], SqlState); 4] = [
            (&[], SqlState::INVALID_AUTHORIZATION),
            (&[("user", "root")], SqlState::INVALID_AUTHORIZATION),
            (&[("user", "eris"), ("database", "other")], SqlState::INVALID_CATALOG_NAME),
            (&[("user", "eris"), ("client_encoding", "LATIN1")], SqlState::INVALID_PARAMETER_VALUE),
        ];
        for (pairs, sqlstate) in cases {
            assert_eq!(startup(pairs).check().unwrap_err().sqlstate, sqlstate, "{pairs:?}");
        }
    }

    #[test]
    fn options_are_settings() {
        let settings =
            startup(&[("user", "eris"), ("options", "-c a=1 -cb=2 --c-d=3"), ("e", "4")]).settings().unwrap();
        let settings: Vec<_> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(settings, ["e=4", "a=1", "b=2", "c_d=3"]);
        assert!(startup(&[("options", "-x")]).settings().is_err());
    }
}

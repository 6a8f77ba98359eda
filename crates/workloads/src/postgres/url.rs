//! `postgres://user[:password]@host[:port]/database`.

use std::str::FromStr;

/// Where and as whom to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    pub user: String,
    pub password: Option<String>,
    pub host: String,
    pub port: u16,
    pub database: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("a database URL starts with postgres://")]
    Scheme,
    #[error("the URL names no user: postgres://USER@host:port/database")]
    User,
    #[error("\"{0}\" is not a port")]
    Port(String),
    #[error("the URL names no host: postgres://user@HOST:port/database")]
    Host,
    #[error("\"{0}\" is not percent-encoded text")]
    Encoding(String),
}

impl FromStr for PostgresUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
        let rest = rest.ok_or(UrlError::Scheme)?;
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, address) = authority.rsplit_once('@').ok_or(UrlError::User)?;
        let (user, password) = credentials.split_once(':').map_or((credentials, None), |(u, p)| (u, Some(p)));
        if user.is_empty() {
            return Err(UrlError::User);
        }
        let (host, port) = split_port(address)?;
        let user = decode(user)?;
        let database = if database.is_empty() { user.clone() } else { decode(database)? };
        let password = password.map(decode).transpose()?;
        Ok(Self { user, password, host, port, database })
    }
}

/// Host and port; an IPv6 address stands in brackets.
fn split_port(address: &str) -> Result<(String, u16), UrlError> {
    let (host, port) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => address.split_once(':').map_or((address, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(UrlError::Host);
    }
    let port = port.map_or(Ok(5432), |port| port.parse().map_err(|_| UrlError::Port(port.to_owned())))?;
    Ok((host.to_owned(), port))
}

fn decode(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
            let (high, low) = (digit(), digit());
            let value = high.zip(low).map(|(high, low)| (high * 16 + low) as u8);
            bytes.push(value.ok_or_else(|| UrlError::Encoding(text.to_owned()))?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| UrlError::Encoding(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PostgresUrl, UrlError> {
        text.parse()
    }

    #[test]
    fn parts_are_found() {
        let url = parse("postgres://eris@127.0.0.1:5433/bench").unwrap();
        assert_eq!((url.user.as_str(), url.host.as_str(), url.port), ("eris", "127.0.0.1", 5433));
        assert_eq!((url.database.as_str(), url.password), ("bench", None));
        let url = parse("postgresql://a%40b:p%3aw@[::1]").unwrap();
        assert_eq!((url.user.as_str(), url.password.as_deref()), ("a@b", Some("p:w")));
        assert_eq!((url.host.as_str(), url.port, url.database.as_str()), ("::1", 5432, "a@b"));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(parse("mysql://a@b/c"), Err(UrlError::Scheme));
        assert_eq!(parse("postgres://localhost/db"), Err(UrlError::User));
        assert_eq!(parse("postgres://u@:1/db"), Err(UrlError::Host));
        assert_eq!(parse("postgres://u@h:port/db"), Err(UrlError::Port("port".to_owned())));
        assert_eq!(parse("postgres://u%4@h/db"), Err(UrlError::Encoding("u%4".to_owned())));
    }
}

//! Why a command ends with a non-zero exit code.

use std::fmt::Display;

/// A failed command.
#[derive(Debug)]
pub enum Failure {
    /// The user has read why.
    Told,
    Message(String),
}

impl Failure {
    pub fn new(message: impl Display) -> Failure {
        Failure::Message(message.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(error)
    }
}

impl From<eris::OpenError> for Failure {
    fn from(error: eris::OpenError) -> Failure {
        Failure::new(error)
    }
}

impl From<eris::SqlError> for Failure {
    fn from(error: eris::SqlError) -> Failure {
        Failure::new(error)
    }
}

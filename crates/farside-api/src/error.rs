//! How a request fails.
//!
//! A failure travels as `{"error":{"code","message","hint"}}`. The code is stable, the message is for people, the
//! hint says what to do next.

use serde::{Deserialize, Serialize};

/// What kind of failure; decides HTTP status and exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The request itself is wrong: a name that cannot be one, a size that is no multiple of 4096.
    WrongUsage,
    /// No such pool, volume, snapshot, peer, mirror or operation.
    NotFound,
    /// The state forbids it.
    Refused,
    /// A thing of that name is there already: refused, too.
    Exists,
    /// Nobody is logged in, and no token that holds came along.
    Unauthenticated,
    /// Who asks may not do that.
    Forbidden,
    /// It takes something away, and did not name it.
    Unconfirmed,
    /// It waits, so that somebody may stop it. No failure: it has been taken.
    Delayed,
    /// It was tried too often; later it may go.
    TooManyRequests,
    /// The pool has no room.
    NoSpace,
    /// What was read is not what was written.
    Corrupt,
    /// The peer could not be reached, or its session was lost.
    PeerUnreachable,
    /// The peer refused, or is not who it should be.
    PeerRefused,
    /// The daemon does not answer; made by the client, never sent.
    DaemonUnreachable,
    /// Everything else; also what a client makes of a code it does not know.
    #[serde(other)]
    Failed,
}

impl ErrorCode {
    /// The HTTP status that carries it.
    pub fn http_status(self) -> u16 {
        match self {
            ErrorCode::WrongUsage => 400,
            ErrorCode::Unauthenticated => 401,
            ErrorCode::Forbidden => 403,
            ErrorCode::Unconfirmed => 428,
            ErrorCode::Delayed => 202,
            ErrorCode::NotFound => 404,
            ErrorCode::TooManyRequests => 429,
            ErrorCode::Refused | ErrorCode::Exists => 409,
            ErrorCode::NoSpace => 507,
            ErrorCode::PeerUnreachable | ErrorCode::PeerRefused => 502,
            ErrorCode::DaemonUnreachable => 503,
            ErrorCode::Corrupt | ErrorCode::Failed => 500,
        }
    }

    /// The exit code of the command line: 1 failed, 2 wrong usage, 3 not found, 4 refused in this state, 5 daemon
    /// unreachable.
    pub fn exit_code(self) -> u8 {
        match self {
            ErrorCode::WrongUsage | ErrorCode::Unconfirmed => 2,
            ErrorCode::NotFound => 3,
            ErrorCode::Refused | ErrorCode::Exists | ErrorCode::Delayed => 4,
            ErrorCode::DaemonUnreachable => 5,
            ErrorCode::Unauthenticated
            | ErrorCode::Forbidden
            | ErrorCode::TooManyRequests
            | ErrorCode::NoSpace
            | ErrorCode::Corrupt
            | ErrorCode::PeerUnreachable
            | ErrorCode::PeerRefused
            | ErrorCode::Failed => 1,
        }
    }
}

/// The failure itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// Its kind.
    pub code: ErrorCode,
    /// What happened, a sentence.
    pub message: String,
    /// What to do next.
    #[serde(default)]
    pub hint: Option<String>,
}

impl ErrorBody {
    /// A failure without a hint.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        ErrorBody { code, message: message.into(), hint: None }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ErrorBody {}

/// The document that carries a failure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ErrorDocument {
    /// The failure.
    pub error: ErrorBody,
}

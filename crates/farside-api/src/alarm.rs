//! Alarms: what is wrong, or soon will be, told once when it begins and once when it is over.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How grave an alarm is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AlarmSeverity {
    /// Somebody should look during the day.
    Warning,
    /// Somebody should look now.
    Critical,
}

impl AlarmSeverity {
    /// As JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            AlarmSeverity::Warning => "warning",
            AlarmSeverity::Critical => "critical",
        }
    }
}

/// An alarm as it is listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Alarm {
    /// Its number at this site.
    pub id: String,
    /// What it is about: `peer-gone`, `pool-full`, …
    pub kind: String,
    /// Which mirror (`POOL/VOL`), pool or peer.
    pub subject: String,
    /// How grave it is.
    pub severity: AlarmSeverity,
    /// When it began.
    pub raised_at: Timestamp,
    /// When it was over; null while it is not.
    pub cleared_at: Option<Timestamp>,
    /// Whether a person has said that it is known.
    pub acknowledged: bool,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// What is told of an alarm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AlarmEvent {
    /// It began.
    Raised,
    /// It is over.
    Cleared,
    /// It is none: a person tries whether alarms arrive.
    Test,
}

impl AlarmEvent {
    /// As JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            AlarmEvent::Raised => "raised",
            AlarmEvent::Cleared => "cleared",
            AlarmEvent::Test => "test",
        }
    }
}

/// What a webhook and a command are told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AlarmNotice {
    /// What has happened.
    pub event: AlarmEvent,
    /// The name of the site that tells it.
    pub site: String,
    /// The same in each attempt to deliver this: who has seen it before has nothing to do.
    pub notice_id: Uuid,
    /// The alarm.
    #[serde(flatten)]
    pub alarm: Alarm,
}

/// What came of a test alarm on one way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AlarmTest {
    /// `log`, `webhook` or `command`.
    pub way: String,
    /// Where it leads: host of the webhook, or program.
    pub target: Option<String>,
    /// Whether it arrived.
    pub ok: bool,
    /// What came of it, in words.
    pub result: String,
}

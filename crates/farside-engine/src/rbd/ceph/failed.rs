//! A call of Ceph that failed.

use std::ffi::{CString, c_int};

/// A call of Ceph that failed: its name, and a positive error number of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failed {
    pub(crate) call: &'static str,
    pub(crate) errno: i32,
}

/// What a call answered, negative if it failed.
pub(super) fn check(call: &'static str, answer: c_int) -> Result<c_int, Failed> {
    if answer < 0 { Err(Failed { call, errno: answer.saturating_neg() }) } else { Ok(answer) }
}

/// As C wants it. What has a zero byte in it names nothing.
pub(super) fn text(call: &'static str, text: &str) -> Result<CString, Failed> {
    CString::new(text).map_err(|_| Failed { call, errno: 22 })
}

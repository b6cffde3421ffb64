//! What an engine does wrong on request, and when it dies.

use uuid::Uuid;

/// What an engine does wrong, on request.
#[derive(Default)]
pub struct Faults {
    /// Reads of this snapshot give another byte.
    pub flip_reads_of: Option<Uuid>,
    /// Reads of this snapshot fail.
    pub fail_reads_of: Option<Uuid>,
    /// Writes to staged versions are damaged.
    pub flip_staged_writes: bool,
    /// What is said to be adopted from elsewhere is something else.
    pub adopts_falsely: bool,
    /// The fingerprints of what is adopted are not those asked for but for their fronts.
    pub finds_other_content: bool,
    /// Room for staged writes, bytes.
    pub staged_bytes_left: Option<u64>,
    /// Room for what is staged and not published, bytes; what is thrown away gives it back at once.
    pub staging_room: Option<u64>,
    /// This snapshot is deleted by whoever it was kept for, just before it is pinned for somebody else.
    pub goes_before_pin: Option<Uuid>,
    /// The same, just before the present state is compared with it.
    pub goes_before_comparison: Option<Uuid>,
    /// Records of replicas cannot be written.
    pub fails_records: bool,
    /// The machine is off: everything fails.
    pub is_dead: bool,
}

/// The steps of a process.
#[derive(Default)]
pub(super) struct Steps {
    /// Steps that it still takes; unless it is to die, any number.
    left: Option<usize>,
    pub(super) died_at: Option<String>,
}

impl Steps {
    pub(super) fn until(step: usize) -> Steps {
        Steps { left: Some(step), died_at: None }
    }

    /// Takes a step; answers whether the process dies instead.
    pub(super) fn pass(&mut self, what: &str, moment: &str) -> bool {
        match &mut self.left {
            Some(0) => {
                self.died_at.get_or_insert_with(|| format!("{what}: {moment}"));
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }
}

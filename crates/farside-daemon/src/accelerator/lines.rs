//! Lines of bounded length from a reader that may be given up in the middle.

use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Why there is no further line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineError {
    /// The other side has closed it.
    #[error("it closed its socket")]
    Closed,
    /// The kernel's word.
    #[error("its socket failed: {0}")]
    Failed(String),
    /// Longer than agreed upon.
    #[error("it wrote a line of more than {0} bytes")]
    TooLong(usize),
}

/// Reads lines.
pub(super) struct Lines<R> {
    from: R,
    length_max: usize,
    /// What was read and is in no line yet.
    buffer: Vec<u8>,
    /// So much of it has no end of a line.
    searched: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Lines of `from`, each of at most `length_max` bytes.
    pub(super) fn new(from: R, length_max: usize) -> Lines<R> {
        Lines { from, length_max, buffer: Vec::new(), searched: 0 }
    }

    /// The next line, without its end. Dropped before it is ready it has lost nothing.
    pub(super) async fn next(&mut self) -> Result<Vec<u8>, LineError> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.searched + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                self.searched = 0;
                return Ok(line);
            }
            self.searched = self.buffer.len();
            if self.searched > self.length_max {
                return Err(LineError::TooLong(self.length_max));
            }
            self.buffer.reserve(READ_BYTES);
            match (&mut self.from).take(READ_BYTES as u64).read_buf(&mut self.buffer).await {
                Ok(0) => return Err(LineError::Closed),
                Ok(_) => {}
                Err(error) => return Err(LineError::Failed(error.to_string())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn lines_come_whole_however_they_arrive() {
        let (mut write, read) = tokio::io::duplex(7);
        let mut lines = Lines::new(read, 100);
        let writing = tokio::spawn(async move {
            write.write_all(b"one\n\ntwo and three\nfo").await.unwrap();
            write.write_all(b"ur\nhalf").await.unwrap();
        });
        for expected in ["one", "", "two and three", "four"] {
            // Given up many times before it is there.
            let line = loop {
                tokio::select! {
                    biased;
                    line = lines.next() => break line,
                    () = tokio::task::yield_now() => {}
                }
            };
            assert_eq!(line.unwrap(), expected.as_bytes());
        }
        writing.await.unwrap();
        assert_eq!(lines.next().await, Err(LineError::Closed));
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_given_up() {
        let endless = tokio::io::repeat(b'x');
        let mut lines = Lines::new(endless, 1 << 20);
        assert_eq!(lines.next().await, Err(LineError::TooLong(1 << 20)));
        assert!(lines.buffer.len() <= (1 << 20) + READ_BYTES, "{}", lines.buffer.len());
    }
}

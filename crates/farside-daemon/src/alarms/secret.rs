//! The secret that a webhook is signed with, from its file.

use std::path::Path;

use farside_platform::private_file::{self, PrivateFileError};
use zeroize::Zeroizing;

/// Longest secret, bytes.
const SECRET_BYTES_MAX: u64 = 4096;

/// The secret in this file.
///
/// # Errors
/// Why there is none.
pub(super) fn secret_of(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let bytes = private_file::read(path, SECRET_BYTES_MAX).map_err(|error| match error {
        // It is no private key, of which these would speak.
        PrivateFileError::Open { path, mode } => {
            format!(
                "others may read the secret in webhook_secret_file {0} (mode {mode:o}); run: chmod 600 {0}",
                path.display()
            )
        }
        PrivateFileError::Long { path, max } => {
            format!("webhook_secret_file {} has more than {max} bytes", path.display())
        }
        error @ PrivateFileError::Io { .. } => format!("webhook_secret_file: {error}"),
    })?;
    let mut bytes = bytes.ok_or_else(|| format!("webhook_secret_file {} is not there", path.display()))?;
    let length = bytes.trim_ascii_end().len();
    if length == 0 {
        return Err(format!("webhook_secret_file {} is empty", path.display()));
    }
    bytes.truncate(length);
    Ok(bytes)
}

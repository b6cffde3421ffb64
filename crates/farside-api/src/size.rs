//! Sizes as people write them. Pure.
//!
//! Whole bytes, or with a binary suffix: `4K` is 4096 bytes, `10G` is 10 x 2^30; `KiB`, `MiB` … say the same. `KB`,
//! `MB` … are refused: half the world reads them as decimal, and a volume's size is no place to guess.

/// Reads a size in bytes.
///
/// # Errors
/// A sentence that says how a size is written.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(digits_end);
    let shift = match suffix {
        "" | "B" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        "P" | "PiB" => 50,
        "KB" | "kB" | "MB" | "GB" | "TB" | "PB" => {
            return Err(format!("{suffix} is ambiguous; sizes are binary: write {digits}{}", &suffix[..1]));
        }
        _ => return Err(String::from("use bytes, or K, M, G, T, P (binary), for example 10G")),
    };
    let number: u64 =
        digits.parse().map_err(|_| String::from("use a whole number, for example 4096, 512M or 10G"))?;
    number.checked_mul(1 << shift).ok_or_else(|| String::from("too large: more than 2^64 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4K", 4096),
            ("4k", 4096),
            ("512M", 512 << 20),
            ("10G", 10 << 30),
            ("10GiB", 10 << 30),
            ("2T", 2 << 40),
            ("16P", 16 << 50),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "G", "-1", "1.5G", "10 G", "10GB", "10g", "16384P", "18446744073709551616", "0x10", "１G"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert!(parse_size("10GB").unwrap_err().contains("10G"));
    }
}

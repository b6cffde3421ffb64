//! Unsigned LEB128 numbers in shortest form, as tables of runs are made of: one number has one encoding.

use crate::layout::VARINT_BYTES_MAX;

/// Appends `n`, which must be below 2^49.
pub fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Takes a number from the front of `input`; says what is wrong with it if it is none.
pub fn take(input: &mut &[u8]) -> Result<u64, &'static str> {
    let mut n = 0;
    for i in 0..VARINT_BYTES_MAX {
        let (&byte, rest) = input.split_first().ok_or("the table ends inside a number")?;
        *input = rest;
        n |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            if byte == 0 && i > 0 {
                return Err("a number that is longer than it needs to be");
            }
            return Ok(n);
        }
    }
    Err("a number too large for the table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_only_in_shortest_form() {
        for n in [0, 1, 127, 128, 300, (1 << 42) - 1, (1 << 45) - 1] {
            let mut out = Vec::new();
            put(&mut out, n);
            assert_eq!(take(&mut &out[..]), Ok(n));
            assert!(take(&mut &out[..out.len() - 1]).is_err());
        }
        assert!(take(&mut &[0x80, 0][..]).is_err());
        assert!(take(&mut &[0xff; 8][..]).is_err());
    }
}

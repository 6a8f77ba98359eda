//! Floating point as text: the shortest digits that read back as the same number, in PostgreSQL's notation.

/// Writes a number whose shortest digits are given by `{:e}`; `fixed_digits_max` is 15 for double precision, 6 for
/// real: from that power of ten on the notation is scientific.
fn write_shortest(scientific: &str, fixed_digits_max: i32, out: &mut Vec<u8>) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    out.extend_from_slice(sign.as_bytes());
    if exponent < -4 || exponent >= fixed_digits_max {
        out.extend_from_slice(mantissa.as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.abs()).as_bytes());
        return;
    }
    let digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + (-exponent - 1) as usize, b'0');
        out.extend_from_slice(&digits);
    } else {
        let whole = exponent as usize + 1;
        for at in 0..whole.max(digits.len()) {
            if at == whole {
                out.push(b'.');
            }
            out.push(digits.get(at).copied().unwrap_or(b'0'));
        }
    }
}

fn special(is_nan: bool, is_infinite: bool, negative: bool) -> Option<&'static [u8]> {
    match (is_nan, is_infinite, negative) {
        (true, ..) => Some(b"NaN"),
        (_, true, true) => Some(b"-Infinity"),
        (_, true, false) => Some(b"Infinity"),
        _ => None,
    }
}

/// `double precision` as text.
pub fn write_f64(value: f64, out: &mut Vec<u8>) {
    match special(value.is_nan(), value.is_infinite(), value < 0.0) {
        Some(word) => out.extend_from_slice(word),
        None => write_shortest(&format!("{value:e}"), 15, out),
    }
}

/// `real` as text.
pub fn write_f32(value: f32, out: &mut Vec<u8>) {
    match special(value.is_nan(), value.is_infinite(), value < 0.0) {
        Some(word) => out.extend_from_slice(word),
        None => write_shortest(&format!("{value:e}"), 6, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_postgres_writes_them() {
        let cases: [(f64, &str); 14] = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (100.0, "100"),
            (0.1, "0.1"),
            (-1.5, "-1.5"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1.234_567_890_123_456e15, "1.234567890123456e+15"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (123.456, "123.456"),
            (f64::INFINITY, "Infinity"),
            (f64::NAN, "NaN"),
        ];
        for (value, expected) in cases {
            let mut out = Vec::new();
            write_f64(value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        let mut out = Vec::new();
        write_f32(1e6, &mut out);
        assert_eq!(out, b"1e+06");
    }

    #[test]
    fn reads_back_as_the_same_number() {
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(bits);
            if value.is_finite() {
                let mut out = Vec::new();
                write_f64(value, &mut out);
                let back: f64 = std::str::from_utf8(&out).unwrap().parse().unwrap();
                assert_eq!(back.to_bits(), value.to_bits());
            }
        }
    }
}

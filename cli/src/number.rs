//! Numbers as people read them.

/// `part` of `whole` as a percentage with one decimal; of nothing it is 0.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", share(part, whole))
}

/// `part` of `whole` in percent; of nothing it is 0.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 * 100.0 / whole as f64
}

/// A whole number with its thousands apart: `12,345,678`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Microseconds as a duration: `250 µs`, `12.5 ms`, `3.21 s`, `12 min 5 s`.
pub fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{} ms", rounded(us as f64 / 1e3)),
        1_000_000..120_000_000 => format!("{} s", rounded(us as f64 / 1e6)),
        _ => {
            let seconds = us / 1_000_000;
            format!("{} min {} s", seconds / 60, seconds % 60)
        }
    }
}

/// With two decimals at most.
fn rounded(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// "1 sample", "2 samples".
pub fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", grouped(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(percent(1, 3), "33.3%");
        assert_eq!(percent(0, 0), "0.0%");
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(duration(250), "250 µs");
        assert_eq!(duration(10_000), "10 ms");
        assert_eq!(duration(3_210_000), "3.21 s");
        assert_eq!(duration(725_000_000), "12 min 5 s");
        assert_eq!(counted(1, "sample"), "1 sample");
    }
}

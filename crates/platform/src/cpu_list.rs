//! The kernel's list format for cpus and nodes: `0-3,8,10-11`.

/// The numbers of a list, ascending and without repetition; `None` if the text is not a list. An empty text is the
/// empty list (a node without cpus).
pub(crate) fn parse(text: &str) -> Option<Vec<u32>> {
    /// Far above any kernel's limit; keeps a broken file from filling the memory.
    const LENGTH_MAX: usize = 1 << 16;
    let text = text.trim();
    let mut numbers = Vec::new();
    if text.is_empty() {
        return Some(numbers);
    }
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || (last - first) as usize >= LENGTH_MAX {
            return None;
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    (numbers.len() <= LENGTH_MAX).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn reads_what_the_kernel_writes_and_refuses_the_rest() {
        assert_eq!(parse("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse("0\n"), Some(vec![0]));
        assert_eq!(parse("\n"), Some(vec![]));
        assert_eq!(parse("5,1-2,2"), Some(vec![1, 2, 5]));
        for broken in ["a", "1-", "-1", "3-1", "1,,2", "0-4294967295"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }
}

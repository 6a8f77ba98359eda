//! "Perhaps you meant": names that are close to one that does not exist.

/// The names closest to `name`, at most three, nearest first. Close is: a third of the letters differ at most, or one
/// contains the other.
pub fn suggestions<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let limit = (name.chars().count() / 3).max(1);
    let mut close: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|known| {
            let distance = edit_distance(name, known);
            let contained = name.len() >= 3 && (known.contains(name) || (known.len() >= 3 && name.contains(known)));
            (distance <= limit || contained).then_some((distance, known))
        })
        .collect();
    close.sort_unstable();
    close.dedup();
    close.into_iter().take(3).map(|(_, name)| name.to_string()).collect()
}

/// Levenshtein distance with transpositions of neighbours.
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let substitution = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = substitution.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let known = ["lineitem", "orders", "customer", "nation", "part", "partsupp"];
        assert_eq!(suggestions("linitem", known), ["lineitem"]);
        assert_eq!(suggestions("order", known), ["orders"]);
        assert_eq!(suggestions("prat", known), ["part"]);
        assert_eq!(suggestions("zebra", known), Vec::<String>::new());
    }
}

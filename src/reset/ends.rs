//! Long lists, shown by their ends: an answer over binder has 1 MiB for everything.

/// Most items at each end of a list that is too long to be shown.
pub const END: usize = 32;

/// The first and the last [`END`] of `items`, and how many were left out between them.
pub fn ends<T>(items: &[T]) -> (&[T], usize, &[T]) {
    match items.len().checked_sub(2 * END) {
        None | Some(0) => (items, 0, &[]),
        Some(omitted) => (&items[..END], omitted, &items[items.len() - END..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_of_short_lists_and_the_ends_of_long_ones_stay() {
        for length in [0, 1, 63, 64, 65, 1000] {
            let items: Vec<usize> = (0..length).collect();
            let (first, omitted, last) = ends(&items);
            assert_eq!(first.len() + omitted + last.len(), length);
            assert_eq!(omitted > 0, length > 64, "{length}");
            assert_eq!(last.last().or(first.last()), items.last());
        }
    }
}

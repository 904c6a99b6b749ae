//! A small vector: a list on the stack that moves to the heap when it exceeds its inline capacity.
//!
//! The scan needs lists whose length the caller or the sender decides: the keys of open objects and
//! the wanted values. Ordinary items fit the inline capacity and cost no allocation. A longer list
//! moves to the heap once and stays there. It never moves back and never holds anything that needs
//! `Drop`.

/// At most `N` elements in place, any number on the heap.
#[derive(Clone, Debug)]
pub(super) struct Inline<T, const N: usize> {
    room: [T; N],
    /// Stays at `N` after the move to the heap, so that a push needs a single comparison.
    used: usize,
    /// Holds all elements once `spilled` is set; `room` is unused from then on.
    heap: Vec<T>,
    spilled: bool,
}

impl<T: Copy + Default, const N: usize> Inline<T, N> {
    #[inline]
    pub(super) fn new() -> Self {
        Inline { room: [T::default(); N], used: 0, heap: Vec::new(), spilled: false }
    }

    /// `length` default elements.
    #[inline]
    pub(super) fn of_length(length: usize) -> Self {
        let mut list = Self::new();
        if length <= N {
            list.used = length;
        } else {
            list.used = N;
            list.heap = vec![T::default(); length];
            list.spilled = true;
        }
        list
    }

    pub(super) fn len(&self) -> usize {
        if self.spilled { self.heap.len() } else { self.used }
    }

    #[inline]
    pub(super) fn push(&mut self, element: T) {
        match self.room.get_mut(self.used) {
            Some(free) => {
                *free = element;
                self.used += 1;
            }
            None => self.push_to_heap(element),
        }
    }

    #[cold]
    #[inline(never)]
    fn push_to_heap(&mut self, element: T) {
        if !self.spilled {
            self.heap.reserve(4 * N);
            self.heap.extend_from_slice(&self.room);
            self.spilled = true;
        }
        self.heap.push(element);
    }

    pub(super) fn truncate(&mut self, length: usize) {
        if self.spilled {
            self.heap.truncate(length);
        } else {
            self.used = self.used.min(length);
        }
    }

    pub(super) fn as_slice(&self) -> &[T] {
        if self.spilled { &self.heap } else { self.room.get(..self.used).unwrap_or_default() }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        if self.spilled {
            &mut self.heap
        } else {
            self.room.get_mut(..self.used).unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_its_order_across_the_move_to_the_heap() {
        let mut list = Inline::<u32, 4>::new();
        for length in 0..12_u32 {
            assert_eq!(list.as_slice(), (0..length).collect::<Vec<_>>(), "length {length}");
            list.push(length);
        }
        list.truncate(2);
        list.push(9);
        assert_eq!((list.as_slice(), list.len()), (&[0, 1, 9][..], 3));
    }

    #[test]
    fn of_length_is_full_of_defaults_on_both_sides_of_the_room() {
        for length in [0, 1, 4, 5, 100] {
            let mut list = Inline::<Option<u8>, 4>::of_length(length);
            assert_eq!((list.len(), list.as_slice().len()), (length, length));
            assert!(list.as_slice().iter().all(Option::is_none));
            if let Some(last) = list.as_mut_slice().last_mut() {
                *last = Some(1);
                assert_eq!(list.as_slice()[length - 1], Some(1));
            }
        }
    }
}

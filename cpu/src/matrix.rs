//! Views of matrices, and their product by the `gemm` crate; values that are written before they are read.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

/// A matrix to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    size: [usize; 2],
    strides: [usize; 2],
}

impl<'a> Matrix<'a> {
    /// Of so many rows and columns, the elements of which lie `strides` apart.
    pub fn new(values: &'a [f32], size: [usize; 2], strides: [usize; 2]) -> Self {
        let last = size.map(|count| count.checked_sub(1));
        if let [Some(row), Some(column)] = last {
            assert!(row * strides[0] + column * strides[1] < values.len(), "a matrix lies within");
        }
        Self { values, size, strides }
    }

    /// Of so many rows and columns, row after row.
    pub fn rows(values: &'a [f32], size: [usize; 2]) -> Self {
        Self::new(values, size, [size[1], 1])
    }

    /// The given columns.
    pub fn columns(self, columns: Range<usize>) -> Self {
        assert!(columns.end <= self.size[1], "columns of the matrix");
        let (values, size) =
            (&self.values[columns.start * self.strides[1]..], [self.size[0], columns.len()]);
        Self { values, size, strides: self.strides }
    }

    /// The given rows.
    pub fn lines(self, rows: Range<usize>) -> Self {
        self.transposed().columns(rows).transposed()
    }

    /// The given columns of a row, whose elements lie side by side.
    pub fn row(self, row: usize, columns: Range<usize>) -> &'a [f32] {
        assert_eq!(self.strides[1], 1, "elements side by side");
        &self.values[row * self.strides[0]..][columns]
    }

    pub fn transposed(self) -> Self {
        let Self { values, size: [rows, columns], strides: [down, right] } = self;
        Self { values, size: [columns, rows], strides: [right, down] }
    }
}

/// A matrix to write, whose rows have their elements side by side.
#[derive(Debug)]
pub(crate) struct MatrixMut<'a> {
    /// Valid for `rows` rows of `columns` elements, `stride` apart, which nobody else has.
    first: *mut f32,
    rows: usize,
    columns: usize,
    stride: usize,
    values: PhantomData<&'a mut [f32]>,
}

// SAFETY: it has its elements to itself, as `&mut [f32]` has.
#[expect(unsafe_code, reason = "a view that may go to another thread, as `&mut [f32]` may")]
unsafe impl Send for MatrixMut<'_> {}

impl<'a> MatrixMut<'a> {
    /// Of so many rows, as long as there are values.
    pub fn rows(values: &'a mut [f32], rows: usize) -> Self {
        let columns = values.len().checked_div(rows).unwrap_or(0);
        assert_eq!(rows * columns, values.len(), "whole rows");
        Self { first: values.as_mut_ptr(), rows, columns, stride: columns, values: PhantomData }
    }

    /// The same of values that are not written yet.
    ///
    /// # Safety
    ///
    /// The first product that is written into an element is not added.
    #[expect(unsafe_code, reason = "what was not written may not be read")]
    pub unsafe fn unwritten(values: &'a mut [MaybeUninit<f32>], rows: usize) -> Self {
        let columns = values.len().checked_div(rows).unwrap_or(0);
        assert_eq!(rows * columns, values.len(), "whole rows");
        let first = values.as_mut_ptr().cast();
        Self { first, rows, columns, stride: columns, values: PhantomData }
    }

    /// The columns before `at` and those from there on.
    pub fn split(self, at: usize) -> [Self; 2] {
        assert!(at <= self.columns, "a column of the matrix");
        let Self { first, rows, columns, stride, .. } = self;
        let part = |first, columns| Self { first, rows, columns, stride, values: PhantomData };
        // A wrapping offset: of no rows or columns there is nothing to point at.
        [part(first, at), part(first.wrapping_add(at), columns - at)]
    }

    /// Parts of so many columns each, the last of which may have fewer.
    pub fn columns(self, each: usize) -> Vec<Self> {
        let (mut parts, mut rest) = (Vec::new(), self);
        while rest.columns > each {
            let [part, behind] = rest.split(each);
            parts.push(part);
            rest = behind;
        }
        parts.push(rest);
        parts
    }

    /// Parts of so many rows each, the last of which may have fewer.
    pub fn lines(self, each: usize) -> impl Iterator<Item = Self> {
        let Self { first, rows, columns, stride, .. } = self;
        parts(rows, each).map(move |rows| {
            // A wrapping offset: of no columns there is nothing to point at.
            let first = first.wrapping_add(rows.start * stride);
            Self { first, rows: rows.len(), columns, stride, values: PhantomData }
        })
    }

    /// A row.
    pub fn line(&mut self, row: usize) -> &mut [MaybeUninit<f32>] {
        assert!(row < self.rows, "a row of the matrix");
        // SAFETY: the row lies within the values, which are borrowed as long as it is.
        #[expect(unsafe_code, reason = "a row of a view")]
        unsafe {
            std::slice::from_raw_parts_mut(self.first.add(row * self.stride).cast(), self.columns)
        }
    }

    /// `left·right`, added to what is there where that is asked for.
    pub fn product(&mut self, add: bool, left: Matrix<'_>, right: Matrix<'_>) {
        let ([rows, depth], [same, columns]) = (left.size, right.size);
        assert_eq!([rows, depth, columns], [self.rows, same, self.columns], "sizes of factors");
        let step = |stride: usize| stride.cast_signed();
        // SAFETY: by `Matrix::new` and `MatrixMut::rows` all three matrices lie within their values, and
        // by the borrow the result overlaps none of the factors. One thread computes.
        #[expect(unsafe_code, reason = "`gemm` takes pointers")]
        unsafe {
            gemm::gemm(
                rows,
                columns,
                depth,
                self.first,
                1,
                step(self.stride),
                add,
                left.values.as_ptr(),
                step(left.strides[1]),
                step(left.strides[0]),
                right.values.as_ptr(),
                step(right.strides[1]),
                step(right.strides[0]),
                1.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    }
}

/// `count` values that `write` writes: to clear hundreds of megabytes first takes one thread a tenth of a step.
///
/// # Safety
///
/// `write` writes every value.
#[expect(unsafe_code, reason = "values are not cleared before they are written")]
pub(crate) unsafe fn written<T>(
    count: usize,
    write: impl FnOnce(&mut [MaybeUninit<f32>]) -> T,
) -> (Vec<f32>, T) {
    let mut values = Vec::with_capacity(count);
    let found = write(unwritten(&mut values.spare_capacity_mut()[..count]));
    // SAFETY: there is room for as many, and by the caller's word they are written.
    unsafe { values.set_len(count) };
    (values, found)
}

/// The same in the room of `buffer`, from the beginning of a cache line on: the widest instructions take a whole line.
/// Where there is too little of it, it is given back first.
///
/// # Safety
///
/// As there.
#[expect(unsafe_code, reason = "values are not cleared before they are written")]
pub(crate) unsafe fn written_in(
    buffer: &mut Vec<f32>,
    count: usize,
    write: impl FnOnce(&mut [MaybeUninit<f32>]),
) -> &mut [f32] {
    buffer.clear();
    if buffer.capacity() < count + LINE {
        // Never both at once.
        drop(std::mem::take(buffer));
        buffer.reserve_exact(count + LINE);
    }
    let values = unwritten(&mut aligned(buffer.spare_capacity_mut())[..count]);
    write(values);
    // SAFETY: by the caller's word they are written.
    unsafe { values.assume_init_mut() }
}

/// Values of a cache line.
pub(crate) const LINE: usize = 64 / size_of::<f32>();

/// The values from the beginning of a cache line on; fewer than [`LINE`] lie before it.
pub(crate) fn aligned<T>(values: &mut [T]) -> &mut [T] {
    let before = values.as_ptr().align_offset(64) % LINE;
    &mut values[before..]
}

/// Room that is not written yet; builds with assertions fill it with what is no number, so that tests see what is left out.
fn unwritten(values: &mut [MaybeUninit<f32>]) -> &mut [MaybeUninit<f32>] {
    if cfg!(debug_assertions) {
        values.fill(MaybeUninit::new(f32::NAN));
    }
    values
}

/// The values with `value` written into them.
pub(crate) fn filled(values: &mut [MaybeUninit<f32>], value: f32) -> &mut [f32] {
    values.fill(MaybeUninit::new(value));
    // SAFETY: all of them were just written.
    #[expect(unsafe_code, reason = "values that were written")]
    unsafe {
        values.assume_init_mut()
    }
}

/// Pixels and channels that `gemm` computes at once on a processor with AVX-512, and what it divides a sum
/// into.
const REGISTERS: [usize; 2] = [48, 8];
const VECTOR: usize = 16;
const DEPTH: usize = 512;

/// Values that `gemm` copies its factors to for a product of `columns` columns and `rows` rows, each a sum
/// of `depth` terms. Whether a row of the right factor has its elements side by side, and one of the left.
pub(crate) fn packed(
    [columns, rows, depth]: [usize; 3],
    right_in_rows: bool,
    left_in_rows: bool,
) -> usize {
    let depth = depth.div_ceil(depth.div_ceil(DEPTH).max(1));
    let [wide, high] = REGISTERS;
    // A larger right factor goes to the thread's own buffer, bit by bit.
    let right = columns <= 16 * wide && !(right_in_rows && columns.is_multiple_of(VECTOR));
    let left = !left_in_rows && columns > 2 * wide;
    let size = |count: usize, unit: usize| count.next_multiple_of(unit) * depth;
    usize::from(right) * size(columns, wide) + usize::from(left) * size(rows, high)
}

/// `count` things in parts of `each`, the last of which may have fewer.
pub(crate) fn parts(count: usize, each: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    (0..count).step_by(each.max(1)).map(move |start| start..(start + each).min(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_views_is_that_of_the_definition() {
        let wave = |count: usize| (0..count).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<_>>();
        let (left, right) = (wave(7 * 5), wave(5 * 9));
        for add in [false, true] {
            let mut out = vec![1.0; 7 * 9];
            for (place, mut part) in MatrixMut::rows(&mut out, 7).columns(4).into_iter().enumerate()
            {
                let columns = part.columns;
                let right = Matrix::new(&right[4 * place..], [5, columns], [9, 1]);
                // Both factors from the other side, too.
                let left = Matrix::rows(&left, [7, 5]).transposed().transposed();
                part.product(add, left, right);
            }
            for (at, found) in out.iter().enumerate() {
                let (row, column) = (at / 9, at % 9);
                let terms =
                    (0..5).map(|k| f64::from(left[row * 5 + k]) * f64::from(right[k * 9 + column]));
                let exact = terms.sum::<f64>() + f64::from(u8::from(add));
                assert!((f64::from(*found) - exact).abs() < 1e-6, "{found} {exact}");
            }
        }
    }
}

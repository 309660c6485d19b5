//! The context model of JPEG-LS (T.87 annex A): prediction, error correction and runs.

use super::bits::Bits;

/// By run index: how many bits a run's length takes (T.87 A.2.1).
const RUN_BITS: [u32; 32] = [
    0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 9, 10, 11, 12, 13,
    14, 15,
];
const CONTEXTS: usize = 365;
/// The contexts of a run's interruption: where the neighbours differ, and where they do not.
const INTERRUPTED: [usize; 2] = [CONTEXTS, CONTEXTS + 1];

/// The parameters of a scan (T.87 C.2.4.1.1.1 and A.2.1).
#[derive(Debug, Clone, Copy)]
pub(super) struct Coding {
    most: i32,
    near: i32,
    thresholds: [i32; 3],
    reset: i64,
    range: i32,
    /// Bits of a mapped error.
    error_bits: u32,
    limit: u32,
}

impl Coding {
    /// # Errors
    /// Parameters that contradict one another.
    pub(super) fn new(precision: u8, near: i32, preset: Option<[i32; 5]>) -> Result<Self, String> {
        let given = preset.unwrap_or_default();
        let or = |value: i32, default: i32| if value == 0 { default } else { value };
        let most = or(given[0], (1 << precision) - 1);
        if most >= 1 << precision || near > most / 2 {
            return Err("has contradictory parameters".to_owned());
        }
        let default = default_thresholds(most, near);
        let thresholds = [1, 2, 3].map(|place| or(given[place], default[place - 1]));
        let [first, second, third] = thresholds;
        let ordered = near < first && first <= second && second <= third && third <= most;
        let reset = i64::from(or(given[4], 64));
        if !ordered || reset < 3 {
            return Err("has contradictory parameters".to_owned());
        }
        let range = (most + 2 * near) / (2 * near + 1) + 1;
        let error_bits = bits_for(range);
        let bits = bits_for(most + 1).max(2);
        let limit = 2 * (bits + bits.max(8));
        Ok(Self { most, near, thresholds, reset, range, error_bits, limit })
    }

    /// The region, -4 to 4, of a difference of neighbours.
    fn region(&self, difference: i32) -> i32 {
        let size = difference.abs();
        let region = match self.thresholds {
            _ if size <= self.near => 0,
            [first, ..] if size < first => 1,
            [_, second, _] if size < second => 2,
            [.., third] if size < third => 3,
            _ => 4,
        };
        region * difference.signum()
    }

    fn reconstructed(&self, predicted: i32, error: i32) -> i32 {
        let step = 2 * self.near + 1;
        let value = predicted + error * step;
        let value = if value < -self.near {
            value + self.range * step
        } else if value > self.most + self.near {
            value - self.range * step
        } else {
            value
        };
        value.clamp(0, self.most)
    }
}

fn bits_for(count: i32) -> u32 {
    i32::BITS - (count - 1).leading_zeros()
}

fn default_thresholds(most: i32, near: i32) -> [i32; 3] {
    let clamp = |value: i32, least: i32| if value > most || value < least { least } else { value };
    let basic = if most >= 128 {
        let factor = (most.min(4095) + 128) / 256;
        [factor + 2 + 3 * near, 4 * factor + 3 + 5 * near, 17 * factor + 4 + 7 * near]
    } else {
        let factor = 256 / (most + 1);
        [2.max(3 / factor + 3 * near), 3.max(7 / factor + 5 * near), 4.max(21 / factor + 7 * near)]
    };
    let first = clamp(basic[0], near + 1);
    let second = clamp(basic[1], first);
    [first, second, clamp(basic[2], second)]
}

#[derive(Debug, Clone, Copy)]
struct Context {
    /// Sum of the errors' sizes.
    size: i64,
    /// Sum of the errors; in the contexts of runs, how many were negative.
    bias: i64,
    correction: i32,
    count: i64,
}

impl Context {
    fn k(&self, size: i64) -> u32 {
        let mut k = 0;
        while k < 24 && self.count << k < size {
            k += 1;
        }
        k
    }

    fn update(&mut self, error: i32, coding: &Coding) {
        self.bias += i64::from(error * (2 * coding.near + 1));
        self.size += i64::from(error.abs());
        if self.count == coding.reset {
            self.size >>= 1;
            self.bias >>= 1;
            self.count >>= 1;
        }
        self.count += 1;
        if self.bias <= -self.count {
            self.bias = (self.bias + self.count).max(1 - self.count);
            self.correction = (self.correction - 1).max(-128);
        } else if self.bias > 0 {
            self.bias = (self.bias - self.count).min(0);
            self.correction = (self.correction + 1).min(127);
        }
    }
}

/// A component's last two lines, with a sample before and one behind.
struct Lines {
    above: Vec<i32>,
    current: Vec<i32>,
    run_index: usize,
}

/// The samples around the one to decode.
struct Around {
    left: i32,
    above: i32,
    corner: i32,
    right: i32,
}

impl Lines {
    fn around(&self, x: usize) -> Around {
        let [corner, above, right] = [self.above[x - 1], self.above[x], self.above[x + 1]];
        Around { left: self.current[x - 1], above, corner, right }
    }
}

/// The state of a scan.
pub(super) struct Model {
    coding: Coding,
    contexts: Vec<Context>,
    parts: Vec<Lines>,
    width: usize,
}

impl Model {
    pub(super) fn new(coding: Coding, parts: usize, width: usize) -> Self {
        let size = i64::from((coding.range + 32) / 64).max(2);
        let context = Context { size, bias: 0, correction: 0, count: 1 };
        let lines =
            || Lines { above: vec![0; width + 2], current: vec![0; width + 2], run_index: 0 };
        Self {
            coding,
            contexts: vec![context; CONTEXTS + 2],
            parts: (0..parts).map(|_| lines()).collect(),
            width,
        }
    }

    /// Makes the decoded line the one above.
    pub(super) fn next_line(&mut self) {
        for part in &mut self.parts {
            std::mem::swap(&mut part.above, &mut part.current);
            part.above[self.width + 1] = part.above[self.width];
            part.current[0] = part.above[1];
        }
    }

    /// The samples of a part's line.
    pub(super) fn decoded(&self, part: usize) -> &[i32] {
        &self.parts[part].current[1..=self.width]
    }

    /// Decodes the line of one component.
    pub(super) fn line(&mut self, part: usize, bits: &mut Bits<'_>) -> Result<(), String> {
        let mut x = 1;
        while x <= self.width {
            let around = self.parts[part].around(x);
            let context = self.context(&around);
            if context != 0 {
                self.parts[part].current[x] = self.regular(&around, context, bits)?;
                x += 1;
                continue;
            }
            let run = self.run(part, self.width + 1 - x, bits)?;
            self.parts[part].current[x..x + run].fill(around.left);
            x += run;
            if x <= self.width {
                let above = self.parts[part].above[x];
                let same = (around.left - above).abs() <= self.coding.near;
                let index = self.parts[part].run_index;
                self.parts[part].current[x] =
                    self.interruption(around.left, above, same, index, bits)?;
                self.parts[part].run_index = index.saturating_sub(1);
                x += 1;
            }
        }
        Ok(())
    }

    /// Decodes the line of all components, sample by sample.
    pub(super) fn samples(&mut self, bits: &mut Bits<'_>) -> Result<(), String> {
        let mut x = 1;
        while x <= self.width {
            let around: Vec<Around> = self.parts.iter().map(|part| part.around(x)).collect();
            let contexts: Vec<i32> = around.iter().map(|around| self.context(around)).collect();
            if contexts.iter().any(|&context| context != 0) {
                for (part, (around, context)) in around.iter().zip(contexts).enumerate() {
                    self.parts[part].current[x] = self.regular(around, context, bits)?;
                }
                x += 1;
                continue;
            }
            let run = self.run(0, self.width + 1 - x, bits)?;
            for (part, around) in self.parts.iter_mut().zip(&around) {
                part.current[x..x + run].fill(around.left);
            }
            x += run;
            if x <= self.width {
                let index = self.parts[0].run_index;
                for (part, around) in around.iter().enumerate() {
                    let above = self.parts[part].above[x];
                    self.parts[part].current[x] =
                        self.interruption(around.left, above, false, index, bits)?;
                }
                self.parts[0].run_index = index.saturating_sub(1);
                x += 1;
            }
        }
        Ok(())
    }

    /// The signed context of T.87 A.3.4; 0 begins a run.
    fn context(&self, around: &Around) -> i32 {
        let Around { left, above, corner, right } = around;
        let region = |difference| self.coding.region(difference);
        81 * region(right - above) + 9 * region(above - corner) + region(corner - left)
    }

    fn regular(
        &mut self,
        around: &Around,
        context: i32,
        bits: &mut Bits<'_>,
    ) -> Result<i32, String> {
        let (coding, sign) = (self.coding, if context < 0 { -1 } else { 1 });
        let context = &mut self.contexts[context.unsigned_abs() as usize];
        let &Around { left, above, corner, .. } = around;
        let predicted = if corner >= left.max(above) {
            left.min(above)
        } else if corner <= left.min(above) {
            left.max(above)
        } else {
            left + above - corner
        };
        let predicted = (predicted + sign * context.correction).clamp(0, coding.most);
        let k = context.k(context.size);
        let mapped = bits.golomb(k, coding.limit - coding.error_bits - 1, coding.error_bits)?;
        let error = (mapped >> 1) ^ -(mapped & 1);
        let swapped = coding.near == 0 && k == 0 && 2 * context.bias <= -context.count;
        let error = if swapped { -error - 1 } else { error };
        // Only a damaged stream has an error beyond the range.
        if error.abs() > coding.range {
            return Err("is damaged".to_owned());
        }
        context.update(error, &coding);
        Ok(coding.reconstructed(predicted, sign * error))
    }

    /// The length of a run, at most `left` (T.87 A.7.1).
    fn run(&mut self, part: usize, left: usize, bits: &mut Bits<'_>) -> Result<usize, String> {
        let index = &mut self.parts[part].run_index;
        let mut run = 0;
        while bits.number(1)? == 1 {
            let whole = 1 << RUN_BITS[*index];
            if left - run >= whole {
                *index = (*index + 1).min(RUN_BITS.len() - 1);
            }
            run = (run + whole).min(left);
            if run == left {
                return Ok(run);
            }
        }
        let rest = bits.number(RUN_BITS[*index])? as usize;
        // The sample that interrupts the run is still on the line.
        if run + rest >= left {
            return Err("is damaged".to_owned());
        }
        Ok(run + rest)
    }

    /// The sample that ends a run (T.87 A.7.2); `same` says whether its neighbours are alike.
    fn interruption(
        &mut self,
        left: i32,
        above: i32,
        same: bool,
        run_index: usize,
        bits: &mut Bits<'_>,
    ) -> Result<i32, String> {
        let coding = self.coding;
        let kind = i32::from(same);
        let context = &mut self.contexts[INTERRUPTED[usize::from(same)]];
        let k = context.k(context.size + if same { context.count >> 1 } else { 0 });
        let limit = coding.limit - RUN_BITS[run_index] - 1 - coding.error_bits - 1;
        let mapped = bits.golomb(k, limit, coding.error_bits)?;
        let size = (mapped + kind + 1) >> 1;
        let odd = (mapped + kind) & 1 == 1;
        let negative = (k != 0 || 2 * context.bias >= context.count) == odd;
        let error = if negative { -size } else { size };
        if size > coding.range {
            return Err("is damaged".to_owned());
        }
        context.bias += i64::from(error < 0);
        context.size += i64::from((mapped + 1 - kind) >> 1);
        if context.count == coding.reset {
            context.size >>= 1;
            context.count >>= 1;
            context.bias >>= 1;
        }
        context.count += 1;
        let (predicted, sign) = match same {
            true => (left, 1),
            false => (above, if left > above { -1 } else { 1 }),
        };
        Ok(coding.reconstructed(predicted, sign * error))
    }
}

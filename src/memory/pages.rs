//! The pages that an allocator carves what a step takes from.
//!
//! CubeCL's allocator takes pages from the device, all of one size, and gives out parts of them: of the first
//! page that has room, the first place that is large enough. A page is as large as the largest buffer so far,
//! and none is given back, so that a step may hold half as much again as it uses. Which size holds least
//! follows from the sizes and lifetimes of a step's buffers, which a dry run knows ([`Pages::least`]).

use std::collections::BTreeMap;

use super::Placement;

/// A buffer of a step. Times are those of a clock that every allocation, launch and release moves on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferLifetime {
    /// Its bytes.
    pub bytes: u64,
    /// When it is taken.
    pub from: u64,
    /// When it is given back; `u64::MAX` where it stays.
    pub to: u64,
    /// When it is launched with last.
    pub used: u64,
    /// In which operation of which step a pass of a fused stage takes it; none where something else does.
    pub pass: Option<StepOperation>,
}

/// An operation of a step's schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepOperation {
    /// The number of the step.
    pub step: usize,
    /// The number of the operation.
    pub operation: usize,
}

/// Pages of an allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// Bytes of a page.
    pub size: u64,
    /// How many there are.
    pub count: u64,
}

impl Pages {
    /// The unit of their size: that of the driver.
    pub const UNIT: u64 = 2 << 20;
    /// What is not larger lies in pages of its own.
    const SMALL: u64 = 64 << 10;
    /// Bytes of these.
    pub const SMALL_PAGE: u64 = 8 << 20;
    /// More pages than this are not tried.
    const MOST: u64 = 16;

    /// Bytes of all of them, and of those of small buffers.
    pub fn bytes(&self) -> u64 {
        self.size * self.count + Self::SMALL_PAGE
    }

    /// What they are compared by: a page too many may still be needed, which costs less where pages are small.
    fn price(&self) -> u64 {
        self.bytes() + self.size / 4
    }

    /// The pages of at most `largest` bytes that hold least of those that the buffers of each of `all` fit in,
    /// however far the thread that allocates is behind the one that asks it; `None` where there are none.
    pub fn least(all: &[Vec<BufferLifetime>], largest: u64) -> Option<Self> {
        let all = all.iter().map(|buffers| large(buffers)).collect::<Vec<_>>();
        let courses = all_courses(&all);
        let fit =
            |pages: &Self| courses.iter().all(|course| pages_of(course, pages.size) <= pages.count);
        let most_at_once =
            courses.iter().map(|(course, buffers)| most_at_once(course, buffers)).max()?;
        let smallest = all.iter().flatten().map(|buffer| buffer.bytes).max()?;
        let mut least: Option<Self> = None;
        for count in 1..=Self::MOST {
            let mut size = most_at_once.div_ceil(count).max(smallest);
            loop {
                size = size.next_multiple_of(Self::UNIT);
                let pages = Self { size, count };
                let beaten = least.is_some_and(|least| least.price() <= pages.price());
                if beaten || size > largest {
                    break;
                }
                if fit(&pages) {
                    least = Some(pages);
                    break;
                }
                size += size / 100;
            }
        }
        least
    }
}

/// Those of `buffers` that lie in pages whose size is chosen.
fn large(buffers: &[BufferLifetime]) -> Vec<BufferLifetime> {
    buffers.iter().copied().filter(|buffer| buffer.bytes > Pages::SMALL).collect()
}

/// What may happen with the buffers of each of `all`.
fn all_courses(all: &[Vec<BufferLifetime>]) -> Vec<(Course, &[BufferLifetime])> {
    let lagging =
        all.iter().flat_map(|buffers| LAGS.map(|lag| (courses(buffers, lag), buffers.as_slice())));
    lagging.flat_map(|(courses, buffers)| courses.map(|course| (course, buffers))).collect()
}

/// How many pages of `size` bytes are needed where this happens.
fn pages_of((course, buffers): &(Course, &[BufferLifetime]), size: u64) -> u64 {
    extent(course, buffers, size).div_ceil(size)
}

/// What happens, in order: which buffer is given back (`false`) or taken (`true`).
type Course = Vec<(bool, usize)>;

/// By how much of the clock the thread that allocates may be behind the thread that asks it.
const LAGS: [u64; 7] = [0, 8, 32, 128, 512, 2048, u64::MAX];

/// When `buffer` is given back where the thread that allocates is so far behind: it has been given back by the
/// one that asks, and nothing that is to be launched uses it.
fn released(buffer: &BufferLifetime, lag: u64) -> u64 {
    match buffer.to {
        u64::MAX => u64::MAX,
        to => to.saturating_sub(lag).max(buffer.used).max(buffer.from + 1),
    }
}

/// What happens with such a lag, with all that stays in use and without: a run has images there that
/// a benchmark has not.
fn courses(buffers: &[BufferLifetime], lag: u64) -> [Course; 2] {
    let mut all: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * buffers.len());
    for (place, buffer) in buffers.iter().enumerate() {
        let to = released(buffer, lag);
        all.extend([(buffer.from, true, place), (to, false, place)]);
    }
    all.sort_unstable();
    let course = |stays: bool| {
        let counted = all.iter().filter(|(.., place)| stays || buffers[*place].to != u64::MAX);
        counted.map(|(_, taken, place)| (*taken, *place)).collect()
    };
    [course(true), course(false)]
}

/// The most bytes that are in use at once.
fn most_at_once(events: &[(bool, usize)], buffers: &[BufferLifetime]) -> u64 {
    let mut live = 0;
    let at_once = events.iter().map(|(taken, place)| {
        match taken {
            true => live += buffers[*place].bytes,
            false => live -= buffers[*place].bytes,
        }
        live
    });
    at_once.max().unwrap_or(0)
}

/// The end of the last place that is taken, where pages of `size` bytes lie one behind the other.
fn extent(events: &[(bool, usize)], buffers: &[BufferLifetime], size: u64) -> u64 {
    // Where each buffer that is in use begins and ends.
    let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
    let mut places = vec![0; buffers.len()];
    let mut most = 0;
    for &(takes, buffer) in events {
        if !takes {
            taken.remove(&places[buffer]);
            continue;
        }
        let bytes = Placement::room(buffers[buffer].bytes);
        // No buffer lies in two pages.
        let within_a_page = |at: u64| match at % size + bytes > size {
            true => at.next_multiple_of(size),
            false => at,
        };
        let mut at = 0;
        for (&begin, &end) in &taken {
            if at + bytes <= begin {
                break;
            }
            at = within_a_page(end);
        }
        places[buffer] = at;
        taken.insert(at, at + bytes);
        most = most.max(at + bytes);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn buffer(mib: u64, from: u64, to: u64) -> BufferLifetime {
        BufferLifetime { bytes: mib * MIB, from, to, used: to, pass: None }
    }

    /// The third buffer does not go where the first was, in one page or behind it in pages of 60 MiB; in pages
    /// of 50 MiB the second lies out of its way.
    #[test]
    fn a_hole_that_is_too_small_is_counted() {
        let buffers = [buffer(40, 0, 3), buffer(20, 1, 9), buffer(50, 4, 9)];
        let [events, _] = courses(&buffers, 0);
        assert_eq!(most_at_once(&events, &buffers), 70 * MIB);
        assert_eq!(extent(&events, &buffers, 1 << 40), 110 * MIB);
        assert_eq!(extent(&events, &buffers, 60 * MIB), 110 * MIB);
        assert_eq!(extent(&events, &buffers, 50 * MIB), 70 * MIB);
        let buffers = [buffers.to_vec()];
        let least = Pages::least(&buffers, u64::MAX);
        assert_eq!(least, Some(Pages { size: 50 * MIB, count: 2 }));
        assert_eq!(Pages::least(&buffers, 40 * MIB), None);
    }

    /// The second buffer could lie where the first was before that is given back by the thread that asks.
    #[test]
    fn pages_hold_what_is_given_back_late_and_early() {
        let first = BufferLifetime { used: 1, ..buffer(10, 0, 8) };
        let buffers = [first, buffer(30, 2, 9), buffer(10, 3, 9)];
        let [early, _] = courses(&buffers, u64::MAX);
        assert_eq!(most_at_once(&early, &buffers), 40 * MIB);
        // The third goes where the first was; the second lies behind that.
        let least = Pages::least(&[buffers.to_vec()], u64::MAX).expect("fits");
        assert_eq!(least.size * least.count, 50 * MIB);
    }
}

//! Statistics of channels, and what norms make of them.

use std::sync::Arc;

use super::channels_last::{Affine, ChannelStats, ChannelsLast, GradientSums, Over, Partials};
use super::exchange::{Synced, exchange_kernels, pixels_of_all};
use super::given::giving_kernels;
use super::gpu::{Argument, Arguments};
use super::kernels::{EPSILON, Entry, Kernels, blocks, entry};
use super::layer::{Normalised, Summed};
use super::stem::STEM_BACKWARD_FINISH;
use super::{Buffer, ChannelParts, Kernel, Sizes, Untouched};
use crate::ops::group_count;

/// What tells the variants that put together what several cards have from those of one.
const OF_SEVERAL_CARDS: usize = 2_000_000;

const CHANNEL_STATISTICS: Entry = entry!("channel_statistics", 1024, [TILES, CHANNELS, EXCHANGE]);
const NORM_AFFINE: Entry = entry!("norm_affine", 256, [TILES]);
const CHANNEL_NORM: Entry = entry!("channel_norm", 512, [TILES, CHANNELS, EXCHANGE, CHANNEL_NORM]);
const CHANNEL_SUMS: Entry = entry!("channel_sums", 1024, [EXCHANGE, NORM_SUMS]);
const NORM_APPLY: Entry = entry!("norm_apply", 256, [TILES, CHANNELS]);
const NORM_BACKWARD_SUMS: Entry = entry!("norm_backward_sums", 256, [TILES, CHANNELS]);
const NORM_BACKWARD_APPLY: Entry = entry!("norm_backward_apply", 256, [TILES, CHANNELS]);
const GROUP_NORM: Entry = entry!("group_norm", 1024, [TILES, CHANNELS, GROUPS]);
const GROUP_SUMS: Entry = entry!("group_sums", 1024, [GROUPS]);
const GROUP_GRADIENTS: Entry = entry!("group_gradients", 256, []);
const INPUT_GRADIENT: Entry = entry!("input_gradient", 256, [TILES, CHANNELS]);

/// What tells where a ReLU let a gradient through.
#[derive(Debug, Clone, Copy)]
enum Mask<'a> {
    /// There is none.
    None,
    /// The norm's input: the ReLU follows the norm.
    Input,
    /// The ReLU's output.
    Output(&'a ChannelsLast),
}

/// Where the statistics of a batch go that running statistics move towards: its mean and its
/// unbiased variance.
#[derive(Debug, Clone)]
pub struct Record {
    /// Zeros, to be replaced by the mean.
    pub mean: Buffer,
    /// Zeros, to be replaced by the variance divided by one less than the number of pixels.
    pub variance: Buffer,
}

/// A norm that a convolution reads a map through. It may have to be worked out first, of what the kernel has left that
/// wrote the map: the convolution's kernel can do that itself.
#[derive(Debug, Clone)]
pub struct ChannelNorm<'a> {
    /// What it does to each channel.
    pub affine: Affine,
    /// What is still to be done, if anything is.
    left: Option<Left<'a>>,
}

/// What a norm is worked out of.
#[derive(Debug, Clone)]
struct Left<'a> {
    /// What a kernel left of the last channels.
    part: Partials,
    /// The statistics of all channels, of which those of the last ones are to be written.
    stats: ChannelStats,
    norm: &'a NormBuffers,
    /// Of all cards.
    pixels: usize,
    record: Option<&'a Record>,
    /// The cards that it is taken over, and where partials of one row go that are made of all of theirs.
    synced: Option<(&'a Synced, Partials)>,
}

impl From<&Affine> for ChannelNorm<'_> {
    /// One that has been worked out.
    fn from(affine: &Affine) -> Self {
        Self { affine: affine.clone(), left: None }
    }
}

/// What a backward kernel left of a norm, and what is made of it: the gradients of its parameters, and its part in
/// what is missing of the gradient of the maps that it reads.
///
/// Where it is synced with other cards, the gradients are of this card. So are the sums of channels that other norms
/// read whose backward pass is still to come; those of the others, the maps' [last piece](ChannelStats::last_piece),
/// become the sums of all cards. Norms of a dense block so exchange what a layer wrote once, when it is complete.
#[derive(Debug, Clone, Copy)]
pub struct NormSums<'a> {
    /// What the kernel left.
    pub part: &'a Partials,
    /// The norm.
    pub normalised: Normalised<'a>,
    /// Where the gradients of its parameters go.
    pub gradients: &'a NormBuffers,
    /// What is missing.
    pub sums: &'a GradientSums,
    /// Whether this norm is the first to write `sums`; it adds to them otherwise.
    pub first: bool,
}

impl<'a> NormSums<'a> {
    /// Channels whose sums are complete, from the last one on.
    fn complete(&self) -> usize {
        self.normalised.stats.last_piece()
    }

    /// With the fields that `kernels/norm_sums.cuh` reads.
    fn sizes(&self, sizes: Sizes) -> Sizes {
        sizes.int(usize::from(!self.first)).int(self.part.channels - self.complete())
    }

    fn buffers(&self) -> [&'a dyn Argument; 6] {
        let Self { part, normalised, gradients, sums, .. } = *self;
        let ([of_gamma, of_beta], [shift, scale]) = (gradients.buffers(), sums.buffers());
        [&part.buffer, &normalised.norm.scale, of_gamma, of_beta, shift, scale]
    }
}

/// The parameters of a norm, or their gradients.
#[derive(Debug, Clone)]
pub struct NormBuffers {
    /// γ, `[channels]`.
    pub scale: Buffer,
    /// β, `[channels]`.
    pub shift: Buffer,
    /// How the channels lie, where there are channels of zeros among them: those are in no group.
    pub parts: Option<Arc<ChannelParts>>,
}

impl NormBuffers {
    /// γ and β.
    pub(super) fn buffers(&self) -> [&Buffer; 2] {
        [&self.scale, &self.shift]
    }
}

impl Record {
    /// The mean and the variance.
    fn buffers(&self) -> [&Buffer; 2] {
        [&self.mean, &self.variance]
    }
}

impl Kernels {
    /// Room for the stats of `channels` channels.
    pub fn stats(&self, channels: usize, over: Over) -> ChannelStats {
        let [mean, variance, inverse_std] = self.vectors(channels * over.images());
        ChannelStats { mean, variance, inverse_std, over, pieces: [channels; 2] }
    }

    /// Room for the sums of `channels` channels.
    pub fn sums(&self, channels: usize, over: Over) -> GradientSums {
        let [shift, scale] = self.vectors(channels * over.images());
        GradientSums { shift, scale, over }
    }

    /// `N` vectors of `length` numbers side by side in one piece of memory.
    fn vectors<const N: usize>(&self, length: usize) -> [Buffer; N] {
        let stride = length.next_multiple_of(4);
        let all = self.small(N * stride);
        std::array::from_fn(|index| all.range(index * stride..index * stride + length))
    }

    /// Room for what a kernel leaves in `rows` parts, of each image where norms are taken over each.
    pub(super) fn partials(&self, rows: usize, channels: usize, over: Over) -> Partials {
        let buffer = self.small(over.images() * rows * (2 * channels + 1));
        Partials { buffer, rows, channels, over, tells: false }
    }

    /// The same in memory that a pass takes again.
    pub(super) fn passing_partials(&self, rows: usize, channels: usize, over: Over) -> Partials {
        let buffer = self.work(over.images() * rows * (2 * channels + 1));
        Partials { buffer, rows, channels, over, tells: false }
    }

    /// The same with words behind them, for a kernel that makes these ready: by them the blocks of the next kernel can
    /// tell each other what they make of the parts.
    pub(super) fn telling_partials(&self, rows: usize, channels: usize, over: Over) -> Partials {
        match over {
            Over::Batch => {
                let buffer = self.work(rows * (2 * channels + 1) + 2 * channels);
                Partials { buffer, rows, channels, over, tells: true }
            }
            Over::Images(_) => self.passing_partials(rows, channels, over),
        }
    }

    /// The kernels by which several cards compute a batch together.
    pub fn of_several_cards(&self) -> Vec<Kernel> {
        let entries = [CHANNEL_STATISTICS, CHANNEL_NORM, CHANNEL_SUMS, STEM_BACKWARD_FINISH];
        let mut kernels: Vec<Kernel> = entries.map(|entry| self.synced(entry)).into();
        kernels.extend(self.hopper_of_several_cards());
        kernels.extend(exchange_kernels());
        kernels.extend(giving_kernels());
        kernels
    }

    pub(super) fn synced(&self, entry: Entry) -> Kernel {
        self.synced_variant(entry, 0, &[])
    }

    /// [`Kernels::variant`] of several cards.
    pub(super) fn synced_variant(
        &self,
        entry: Entry,
        variant: usize,
        macros: &[(&str, usize)],
    ) -> Kernel {
        let macros = [macros, &[("SYNCED", 1)]].concat();
        self.variant(entry, variant + OF_SEVERAL_CARDS, &macros)
    }

    /// Puts together what a forward kernel left; where it is `synced` with what it left on other cards,
    /// that of all is returned as partials of one row.
    pub fn channel_statistics(
        &self,
        part: &Partials,
        out: &ChannelStats,
        synced: Option<&Synced>,
    ) -> Option<Partials> {
        let sizes = Sizes::of([part.rows, part.channels]).float(EPSILON).int(0);
        let over = part.over;
        let grid = [blocks(part.channels, 8), 1, over.images()];
        let [mean, variance, inverse_std] = out.buffers();
        let buffers: Arguments<'_> = &[&part.buffer, mean, variance, inverse_std];
        let Some(synced) = synced else {
            self.gpu.launch(&self.get_over(CHANNEL_STATISTICS, over), grid, buffers, &sizes);
            return None;
        };
        let row = self.partials(1, part.channels, over);
        let buffers = [buffers, &[&row.buffer]].concat();
        let exchanged = (3 * part.channels, &row.buffer);
        synced.multiply(&self.synced(CHANNEL_STATISTICS), grid, &buffers, sizes, exchanged, 0);
        Some(row)
    }

    /// What a norm with parameters `norm` does to channels with these `stats` over `pixels` pixels.
    /// The statistics go into `record` as well, if it is given.
    pub fn affine(
        &self,
        stats: &ChannelStats,
        norm: &NormBuffers,
        pixels: usize,
        record: Option<&Record>,
    ) -> Affine {
        let channels = stats.channels();
        let [scale, shift] = self.vectors(channels);
        let unbias = pixels as f32 / pixels.saturating_sub(1).max(1) as f32;
        let sizes = Sizes::of([channels, usize::from(record.is_some())]);
        // Zeros moved all the way towards the batch's statistics are these.
        let sizes = sizes.float(EPSILON).float(1.0).float(unbias);
        let ([mean, variance, _], [gamma, beta]) = (stats.buffers(), norm.buffers());
        let buffers: Arguments<'_> = &[mean, variance, gamma, beta, &scale, &shift];
        let unwritten = Untouched(&scale);
        let recorded = unwritten.or(record.map(Record::buffers));
        let (grid, buffers) = ([blocks(channels, 256), 1, 1], [buffers, &recorded].concat());
        self.gpu.launch(&self.get(NORM_AFFINE), grid, &buffers, &sizes);
        Affine { scale, shift, over: Over::Batch }
    }

    /// What a GroupNorm with parameters `norm` does to channels with these `stats`, and the statistics that it
    /// uses: of each channel those of its group, image by image. `part` is what a kernel has left of the last
    /// channels, whose statistics are then written first.
    pub fn group_norm(
        &self,
        part: Option<&Partials>,
        stats: &ChannelStats,
        norm: &NormBuffers,
    ) -> (ChannelStats, Affine) {
        let (channels, over) = (stats.channels(), stats.over);
        let [mean, inverse_std, scale, shift] = self.vectors(channels * over.images());
        let unread = Untouched(&stats.mean);
        let (left, [rows, written]): (&dyn Argument, [usize; 2]) = match part {
            Some(part) => (&part.buffer, [part.rows, part.channels]),
            None => (&unread, [0, 0]),
        };
        let (kernel, sizes) = self.group_kernel(GROUP_NORM, stats, norm);
        let sizes = sizes.ints([rows, written]).float(EPSILON);
        let ([of_each, variance, _], [gamma, beta]) = (stats.buffers(), norm.buffers());
        let buffers: Arguments<'_> =
            &[left, of_each, variance, gamma, beta, &mean, &inverse_std, &scale, &shift];
        self.gpu.launch(&kernel, [over.images(), 1, 1], buffers, &sizes);
        let of_groups = ChannelStats { variance: mean.clone(), mean, inverse_std, ..*stats };
        (of_groups, Affine { scale, shift, over })
    }

    /// The kernel of `entry` for GroupNorm `norm` of channels with these `stats`, and the fields that its sizes begin
    /// with.
    fn group_kernel(
        &self,
        entry: Entry,
        stats: &ChannelStats,
        norm: &NormBuffers,
    ) -> (Kernel, Sizes) {
        let (channels, [first, next]) = (stats.channels(), stats.pieces);
        let sizes = |others: usize| {
            let sizes = Sizes::new().int(channels).int(group_count(others));
            sizes.int(first).int(next).int(stats.over.images())
        };
        let Some(parts) = &norm.parts else { return (self.get(entry), sizes(channels)) };
        let [first, next] = parts.first_and_next();
        let sizes = sizes(parts.channels()).int(first.room).int(next.room);
        let sizes = sizes.int(first.channels).int(next.channels);
        (self.variant(entry, 1, &[("PADDED", 1)]), sizes)
    }

    /// A norm with parameters `norm` over all channels of `stats`, of which a kernel has just written the last ones and
    /// left `part`: [`Kernels::channel_statistics`] of these and [`Kernels::affine`] are still to be done. Where it is
    /// `synced` with other cards, partials of one row of what all have left are returned as well.
    pub fn channel_norm<'a>(
        &self,
        part: &Partials,
        stats: &ChannelStats,
        norm: &'a NormBuffers,
        pixels: usize,
        record: Option<&'a Record>,
        synced: Option<&'a Synced>,
    ) -> (ChannelNorm<'a>, Option<Partials>) {
        let [scale, shift] = self.vectors(stats.channels());
        let row = synced.map(|_| self.partials(1, part.channels, Over::Batch));
        let (part, stats) = (part.clone(), stats.clone());
        let synced = synced.zip(row.clone());
        let left = Some(Left { part, stats, norm, pixels, record, synced });
        (ChannelNorm { affine: Affine { scale, shift, over: Over::Batch }, left }, row)
    }

    /// Does what is left to be done of a norm, in a launch of its own.
    pub fn make_norm(&self, norm: &ChannelNorm<'_>) {
        let Some(Left { part, stats, .. }) = &norm.left else { return };
        let (written, channels) = (part.channels, stats.channels());
        let grid = [blocks(written, 8) + blocks(channels - written, 512), 1, 1];
        self.multiply_normed(CHANNEL_NORM, (0, &[]), grid, (&[], Sizes::new()), norm, 0);
    }

    /// Launches a kernel that reads a map through `norm`, and first does what is left to be done of it. The kernel is
    /// given `given`, then what `kernels/channel_norm.cuh` reads; its blocks wait for each other, so all must run at
    /// once. Where they are too few, or the kernel before has left no words for them, the norm has a launch of its own.
    pub(super) fn multiply_behind(
        &self,
        entry: Entry,
        variant: (usize, &[(&str, usize)]),
        grid: [usize; 3],
        given: (Arguments<'_>, Sizes),
        norm: &ChannelNorm<'_>,
        products: usize,
    ) {
        let left = norm.left.as_ref();
        match left.is_none_or(|Left { part, .. }| part.tells && 8 * grid[0] >= part.channels) {
            true => self.multiply_normed(entry, variant, grid, given, norm, products),
            false => {
                self.make_norm(norm);
                let made = (&norm.affine).into();
                self.multiply_normed(entry, variant, grid, given, &made, products);
            }
        }
    }

    /// Launches the kernel of `entry` with what `kernels/channel_norm.cuh` reads behind `buffers` and `sizes`.
    fn multiply_normed(
        &self,
        entry: Entry,
        (variant, macros): (usize, &[(&str, usize)]),
        grid: [usize; 3],
        (buffers, sizes): (Arguments<'_>, Sizes),
        ChannelNorm { affine, left }: &ChannelNorm<'_>,
        products: usize,
    ) {
        let Affine { scale, shift, over } = affine;
        let untouched = Untouched(scale);
        let Some(Left { part, stats, norm, pixels, record, synced }) = left else {
            let none: &dyn Argument = &untouched;
            let behind: Arguments<'_> =
                &[none, none, none, none, none, none, scale, shift, none, none];
            let sizes = sizes.ints([0, 0, 0, 0, 0, 0]);
            let kernel = self.variant_over(entry, variant, macros, *over);
            let buffers = [buffers, behind].concat();
            return self.gpu.multiply(&kernel, grid, &buffers, &sizes, products);
        };
        let unbias = *pixels as f32 / pixels.saturating_sub(1).max(1) as f32;
        let sizes = sizes.ints([part.rows, part.channels, stats.channels()]);
        let sizes = sizes.int(usize::from(record.is_some())).float(EPSILON).float(unbias);
        let ([mean, variance, inverse_std], [gamma, beta]) = (stats.buffers(), norm.buffers());
        let behind: Arguments<'_> =
            &[&part.buffer, mean, variance, inverse_std, gamma, beta, scale, shift];
        let recorded = untouched.or(record.map(Record::buffers));
        let buffers = [buffers, behind, &recorded].concat();
        let Some((synced, row)) = synced else {
            let kernel = self.variant(entry, variant, macros);
            return self.gpu.multiply(&kernel, grid, &buffers, &sizes, products);
        };
        let kernel = self.synced_variant(entry, variant, macros);
        let buffers = [&buffers[..], &[&row.buffer]].concat();
        let exchanged = (3 * part.channels, &row.buffer);
        synced.multiply(&kernel, grid, &buffers, sizes, exchanged, products);
    }

    /// [`Kernels::channel_sums`] of the norm that is the first to write what is missing of its maps' gradient, which is returned.
    pub fn first_sums(
        &self,
        part: &Partials,
        normalised: Normalised<'_>,
        gradients: &NormBuffers,
    ) -> GradientSums {
        let sums = self.sums(part.channels, part.over);
        self.channel_sums(NormSums { part, normalised, gradients, sums: &sums, first: true });
        sums
    }

    /// Puts together what a backward kernel left of a norm, in a launch of its own: see [`NormSums`].
    pub fn channel_sums(&self, left: NormSums<'_>) {
        let NormSums { part, normalised, gradients, sums, first } = left;
        let Normalised { stats, norm, synced, .. } = normalised;
        match (synced, part.over) {
            (Some(synced), _) => self.channel_sums_of_all(left, None, synced),
            (None, Over::Batch) => {
                let sizes = left.sizes(Sizes::new().int(part.rows).int(part.channels));
                let grid = [blocks(part.channels, 8), 1, 1];
                self.gpu.launch(&self.get(CHANNEL_SUMS), grid, &left.buffers(), &sizes);
            }
            (None, Over::Images(images)) => {
                let [scale, shift] = self.vectors(part.channels * images);
                let (kernel, sizes) = self.group_kernel(GROUP_SUMS, stats, norm);
                let sizes = sizes.ints([part.rows, usize::from(!first), 0]);
                let ([mean, _, inverse_std], [s1, s2]) = (stats.buffers(), sums.buffers());
                let buffers: Arguments<'_> =
                    &[&part.buffer, &norm.scale, mean, inverse_std, &scale, &shift, s1, s2];
                self.gpu.launch(&kernel, [images, 1, 1], buffers, &sizes);
                let sizes = Sizes::of([part.channels, images]);
                let buffers: Arguments<'_> = &[&scale, &shift, &gradients.scale, &gradients.shift];
                let grid = [blocks(part.channels, 32), 1, 1];
                self.gpu.launch(&self.get(GROUP_GRADIENTS), grid, buffers, &sizes);
            }
        }
    }

    /// [`Kernels::channel_sums`] of several cards. What the gradients of the norm's parameters are on all
    /// cards together goes to `all`, if it is given, in place of the sums.
    fn channel_sums_of_all(&self, left: NormSums<'_>, all: Option<[&Buffer; 2]>, synced: &Synced) {
        let NormSums { part, gradients, .. } = left;
        let sizes = Sizes::of([part.rows, part.channels]);
        let sizes = left.sizes(sizes.int(usize::from(all.is_some())).int(0));
        let complete = if all.is_some() { part.channels } else { left.complete() };
        let unwritten = Untouched(&gradients.shift);
        let buffers = [&left.buffers()[..], &unwritten.or(all)].concat();
        let (grid, exchanged) =
            ([blocks(part.channels, 8), 1, 1], (2 * complete, &gradients.scale));
        synced.multiply(&self.synced(CHANNEL_SUMS), grid, &buffers, sizes, exchanged, 0);
    }

    /// Launches a kernel that writes something else in `own` blocks and, in `of_norm` blocks before them, does what
    /// [`Kernels::channel_sums`] does. Of GroupNorm that is launched behind it. `buffers` and `sizes` are what the kernel
    /// of `entry` is given first.
    pub(super) fn finish_with_sums(
        &self,
        entry: Entry,
        [own, of_norm]: [usize; 2],
        buffers: Arguments<'_>,
        sizes: Sizes,
        left: NormSums<'_>,
    ) {
        let NormSums { normalised, gradients, .. } = left;
        let over = normalised.stats.over;
        let sizes = left.sizes(sizes);
        let buffers = [buffers, &left.buffers()].concat();
        let grid = [own + of_norm, 1, 1];
        match (normalised.synced, over) {
            (Some(synced), _) => {
                let exchanged = (2 * left.complete(), &gradients.scale);
                synced.multiply(&self.synced(entry), grid, &buffers, sizes, exchanged, 0);
            }
            (None, Over::Batch) => self.gpu.launch(&self.get(entry), grid, &buffers, &sizes),
            (None, Over::Images(_)) => {
                self.gpu.launch(&self.get_over(entry, over), [own, 1, 1], &buffers, &sizes);
                self.channel_sums(left);
            }
        }
    }

    /// scale·x + shift of the channels `map`, after ReLU.
    pub fn normalised(&self, map: &ChannelsLast, affine: &Affine) -> ChannelsLast {
        let out = self.empty_map(map.pixels(), map.channels());
        self.norm_apply(map, affine, &out, true);
        out
    }

    /// Copies channels.
    pub fn copy(&self, map: &ChannelsLast, out: &ChannelsLast) {
        self.norm_apply(map, &self.identity(map.channels()), out, false);
    }

    fn norm_apply(&self, map: &ChannelsLast, affine: &Affine, out: &ChannelsLast, relu: bool) {
        let over = affine.over;
        let (pixels, channels) = (map.pixels() / over.images(), map.channels());
        // The kernel can add a residual as well, which nobody asks for.
        let unread = Untouched(map.buffer());
        let mode = if relu { 2 } else { 0 };
        let sizes = Sizes::of([pixels, channels, map.stride(), map.stride(), out.stride(), mode]);
        let buffers: Arguments<'_> = &[map, &affine.scale, &affine.shift, &unread, out];
        let grid = [self.streaming(pixels, over), self.lanes(channels), over.images()];
        self.gpu.launch(&self.get_over(NORM_APPLY, over), grid, buffers, &sizes);
    }

    /// Blocks side by side of a kernel that goes once over so many pixels, of each image where norms are taken over
    /// each.
    pub(super) fn streaming(&self, pixels: usize, over: Over) -> usize {
        blocks(pixels, 32).min(blocks(8 * self.multiprocessors, over.images()))
    }

    /// Blocks behind one another of a kernel that goes over so many channels.
    pub(super) fn lanes(&self, channels: usize) -> usize {
        blocks(channels, 8 * self.vector())
    }

    /// Turns the gradient of a norm's output, after ReLU where `relu`, into that of its input, `map`,
    /// in place, and writes the gradients of its parameters.
    pub fn norm_backward(
        &self,
        gradient: &ChannelsLast,
        map: &ChannelsLast,
        normalised: Normalised<'_>,
        norm_gradients: &NormBuffers,
        relu: bool,
    ) {
        let mask = if relu { Mask::Input } else { Mask::None };
        let sums = self.norm_sums(gradient, map, mask, normalised, norm_gradients);
        self.norm_input(gradient, map, mask, normalised, &sums, gradient);
    }

    /// Turns the input of a norm, `map`, whose output was added to a shortcut before ReLU gave
    /// `output`, into its gradient, in place; and `gradient`, that of `output`, into that of the
    /// sum. Writes the gradients of the norm's parameters.
    pub fn residual_backward(
        &self,
        gradient: &ChannelsLast,
        map: &ChannelsLast,
        output: &ChannelsLast,
        normalised: Normalised<'_>,
        norm_gradients: &NormBuffers,
    ) {
        let mask = Mask::Output(output);
        let sums = self.norm_sums(gradient, map, mask, normalised, norm_gradients);
        self.norm_input(gradient, map, Mask::None, normalised, &sums, map);
    }

    /// Writes the gradients of a norm's parameters; returns those over the pixels of all cards that the norm
    /// is taken over, or, of GroupNorm, what is missing of its input's gradient. A mask by the ReLU's output is applied to `gradient`.
    fn norm_sums(
        &self,
        gradient: &ChannelsLast,
        map: &ChannelsLast,
        mask: Mask<'_>,
        normalised: Normalised<'_>,
        norm_gradients: &NormBuffers,
    ) -> [Buffer; 2] {
        let [mean, inverse_std, scale, shift, _] = normalised.arguments();
        let over = normalised.stats.over;
        let (pixels, channels) = (map.pixels() / over.images(), map.channels());
        let rows = blocks(pixels, 64).min(blocks(4 * self.multiprocessors, over.images()));
        let part = self.partials(rows, channels, over);
        let unread = Untouched(map.buffer());
        let (mask, output, stride): (usize, &dyn Argument, usize) = match mask {
            Mask::None => (0, &unread, map.stride()),
            Mask::Input => (1, &unread, map.stride()),
            Mask::Output(output) => (2 + 4, output, output.stride()),
        };
        let sizes = Sizes::of([pixels, channels, gradient.stride(), map.stride(), stride, mask]);
        let buffers: Arguments<'_> =
            &[gradient, map, output, mean, inverse_std, scale, shift, &part.buffer];
        let kernel = self.variant_over(NORM_BACKWARD_SUMS, mask, &[("MASK", mask)], over);
        self.gpu.launch(&kernel, [rows, self.lanes(channels), over.images()], buffers, &sizes);
        let sums = self.sums(channels, over);
        let (part, gradients, first) = (&part, norm_gradients, true);
        let left = NormSums { part, normalised, gradients, sums: &sums, first };
        let Some(synced) = normalised.synced else {
            self.channel_sums(left);
            return match over {
                Over::Batch => norm_gradients.buffers().map(Buffer::clone),
                Over::Images(_) => [sums.scale, sums.shift],
            };
        };
        let all = self.vectors(channels);
        self.channel_sums_of_all(left, Some(all.each_ref()), synced);
        all
    }

    /// Writes the gradient of a norm's input into `out`, which may be `gradient` or `map`, given what
    /// [`Kernels::norm_sums`] returns.
    fn norm_input(
        &self,
        gradient: &ChannelsLast,
        map: &ChannelsLast,
        mask: Mask<'_>,
        normalised: Normalised<'_>,
        [of_gamma, of_beta]: &[Buffer; 2],
        out: &ChannelsLast,
    ) {
        let over = normalised.stats.over;
        let (pixels, channels) = (map.pixels() / over.images(), map.channels());
        let masked = usize::from(matches!(mask, Mask::Input));
        let sizes = Sizes::of([pixels, channels, gradient.stride(), map.stride(), 0, out.stride()]);
        let sizes = sizes.ints([0, masked]);
        let sizes = sizes.float(1.0 / pixels_of_all(normalised.synced, pixels) as f32).int(0);
        let [mean, inverse_std, scale, shift, _] = normalised.arguments();
        let (unread, unwritten) = (Untouched(map.buffer()), Untouched(out.buffer()));
        let buffers: Arguments<'_> =
            &[gradient, map, &unread, mean, inverse_std, scale, shift, of_gamma, of_beta];
        let buffers = [buffers, &[out, &unwritten]].concat();
        let grid = [self.streaming(pixels, over), self.lanes(channels), over.images()];
        self.gpu.launch(&self.get_over(NORM_BACKWARD_APPLY, over), grid, &buffers, &sizes);
    }

    /// Makes the gradient of its channels of S and what is missing of it, in place. Where their norms are `synced`, what
    /// is missing is of all cards.
    pub fn input_gradient(&self, summed: Summed<'_>, synced: Option<&Synced>) {
        let Summed { data: out, map, missing, .. } = summed;
        let over = missing.over;
        let (pixels, channels) = (map.pixels() / over.images(), map.channels());
        let sizes = Sizes::of([pixels, channels, out.stride(), map.stride(), out.stride()]);
        let sizes = sizes.float(1.0 / pixels_of_all(synced, pixels) as f32);
        let buffers = [&summed.arguments()[..], &[out]].concat();
        let grid = [self.streaming(pixels, over), self.lanes(channels), over.images()];
        self.gpu.launch(&self.get_over(INPUT_GRADIENT, over), grid, &buffers, &sizes);
    }
}

//! Memory that passes of fused stages take their buffers from.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use burn::backend::StreamId;
use burn::tensor::DType;
use burn_cubecl::cubecl::server::{BufferBinding, Handle};

use super::Cuda;
use crate::memory::Placement;
use crate::ops::gpu::arena::Parts;
use crate::ops::gpu::gpu::{bytes, lock};
use crate::ops::gpu::{Buffer, Gpu};

/// Memory of a card for the passes that one stream's threads launch. A part is taken again as soon as it is given back: what was
/// launched with it runs before whatever is launched later.
#[derive(Debug)]
pub(in crate::ops::gpu) struct Arena {
    /// All of it.
    memory: Handle,
    bytes: u64,
    parts: Mutex<Parts>,
    /// For the arguments of launches: see [`Arena::binding`].
    bindings: Mutex<Vec<BufferBinding>>,
}

/// As many are made at once.
const BINDINGS: usize = 1024;

/// A part of an arena, which has it back when this goes.
#[derive(Debug)]
pub(super) struct Part {
    arena: Arc<Arena>,
    begin: u64,
}

impl Drop for Part {
    fn drop(&mut self) {
        lock(&self.arena.parts).give_back(self.begin);
    }
}

impl Part {
    pub(super) fn memory(&self) -> &Handle {
        &self.arena.memory
    }

    pub(super) fn binding(&self) -> BufferBinding {
        self.arena.binding()
    }
}

/// Memory that passes take theirs from as long as this is held.
#[derive(Debug)]
pub struct Reserved {
    _arena: Arc<Arena>,
}

/// By the card and the stream.
type Arenas = BTreeMap<(usize, StreamId), Weak<Arena>>;

static ARENAS: Mutex<Arenas> = Mutex::new(BTreeMap::new());

impl Arena {
    /// What a launch is given so that it finds the memory. All of them count in one word, which CubeCL's thread counts down while
    /// the current one launches: each would wait for the other at each argument, did not this one count many at once.
    fn binding(&self) -> BufferBinding {
        let mut bindings = lock(&self.bindings);
        if bindings.is_empty() {
            bindings.extend(std::iter::repeat_n(self.memory.clone().binding(), BINDINGS));
        }
        bindings.pop().expect("some were made")
    }

    /// A buffer in it; none where there is no room.
    pub(in crate::ops::gpu) fn take(
        self: &Arc<Self>,
        length: usize,
        storage: DType,
    ) -> Option<Buffer> {
        let begin = lock(&self.parts).take(bytes(length, storage) as u64)?;
        let part = Part { arena: Arc::clone(self), begin };
        let behind = self.bytes - begin - (length * storage.size()) as u64;
        Some(Buffer::in_arena(part, [begin, behind], storage, length))
    }
}

impl Cuda {
    /// That of the current thread's stream.
    pub(in crate::ops::gpu) fn arena(&self) -> Option<Arc<Arena>> {
        lock(&ARENAS).get(&(self.index, StreamId::current()))?.upgrade()
    }
}

impl Gpu {
    /// Takes memory in which the passes of the steps that the current thread's stream launches lie as `placement` has it, in an allocation
    /// of its own.
    ///
    /// # Errors
    ///
    /// Where there is not so much memory.
    pub fn reserve(&self, placement: &Placement) -> Result<Reserved, String> {
        let bytes = placement.bytes;
        let memory = self.client().memory_dedicated_allocation((), |()| {
            let memory = self.client().empty(bytes as usize);
            Buffer::on_device(memory, DType::F32, bytes as usize / DType::F32.size())
        });
        self.check(std::slice::from_ref(&memory))?;
        let parts = Mutex::new(Parts::new(placement.clone()));
        let bindings = Mutex::new(Vec::new());
        let arena = Arc::new(Arena { memory: memory.handle(), bytes, parts, bindings });
        lock(&ARENAS).insert((self.index(), StreamId::current()), Arc::downgrade(&arena));
        Ok(Reserved { _arena: arena })
    }

    /// Bytes of the card's arenas in which nothing lies.
    pub fn free_in_arenas(&self) -> u64 {
        let arenas = lock(&ARENAS);
        let own = arenas.iter().filter(|((card, _), _)| *card == self.index());
        let own = own.filter_map(|(_, arena)| arena.upgrade());
        own.map(|arena| arena.bytes - lock(&arena.parts).bytes()).sum()
    }
}

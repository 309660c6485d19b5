//! Kernels that Burn generates, compiled ahead.
//!
//! Their text is known when they are first launched. CubeCL then looks for its hash among those of what it has
//! compiled, since another build of the program knows the same kernel by another key, and takes the code that was
//! made of that very text. So code that the program was built with is put there with the hash of its text, under a key
//! that no kernel has.

use burn_cubecl::cubecl::ir::attributes::BufferIOAttr;
use cubecl_server::compiler::{KernelCacheKey, compilation_store};
use cudarc::driver::CudaContext;
use serde::Deserialize;

use super::{Entry, fingerprint, nvrtc};
use crate::ops::gpu::shipped::Shipped;

/// In the place of a build's hash.
const NO_BUILD: u128 = 0;

/// What CubeCL must know of a kernel besides its machine code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    entry: String,
    shared: usize,
    io: Option<Vec<BufferIOAttr>>,
}

/// Puts what the program was built with for the card `index` where CubeCL finds it, unless it is there already.
/// Nothing is put there that cannot be read or that an NVRTC made which is newer than the installed one.
pub fn hand_over_generated(index: usize) {
    if !Shipped::IS_THERE {
        return;
    }
    let Ok(capability) = CudaContext::new(index).and_then(|context| context.compute_capability())
    else {
        return;
    };
    if let Some(shipped) = Shipped::open(capability, &nvrtc::version()) {
        hand_over(shipped, &fingerprint(capability));
    }
}

fn hand_over(mut shipped: Shipped, fingerprint: &str) -> Option<()> {
    let mut codes = compilation_store::<KernelCacheKey, Entry>("cuda", fingerprint)?;
    let mut texts = compilation_store::<u128, KernelCacheKey>("cuda-second-line", fingerprint)?;
    // It names CubeCL's version, the architecture and what generates the text.
    let namespace = texts.namespace()?.as_str().to_owned();
    for hash in shipped.generated(&namespace) {
        if texts.remove(&hash).is_some() {
            continue;
        }
        let Some((told, code)) = shipped.read_generated::<Told>(&namespace, hash) else { continue };
        let key = KernelCacheKey { id: hash, build_id: NO_BUILD };
        // Where another process has been faster, there is the same.
        let _ = codes.insert(key, Entry::new(told.entry, told.shared, code, told.io));
        let _ = texts.insert(hash, key);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use burn_cubecl::cubecl::environment;
    use cubecl_server::config::{CubeClRuntimeConfig, RuntimeConfig};

    use super::*;
    use crate::ops::gpu::shipped::tests::archive_of;

    const FINGERPRINT: &str = "ptx_sm90-cpp";

    fn hand_over_an_archive_of(entries: &[(String, String)]) {
        let shipped = Shipped::open_in(archive_of(entries), (9, 0), "13.0").expect("an archive");
        hand_over(shipped, FINGERPRINT).expect("a cache");
    }

    /// What CubeCL does where it does not know a kernel by `key` and has generated a text with the hash `text`: it
    /// removes what it finds and keeps it by the key.
    fn moved(text: u128, key: KernelCacheKey) -> Option<Entry> {
        let mut texts = compilation_store::<u128, KernelCacheKey>("cuda-second-line", FINGERPRINT)?;
        let mut codes = compilation_store::<KernelCacheKey, Entry>("cuda", FINGERPRINT)?;
        let entry = codes.purge_key(&texts.purge_key(&text)?)?;
        codes.insert(key, entry).expect("is kept");
        texts.insert(text, key).expect("is kept");
        codes.remove(&key)
    }

    #[test]
    fn a_kernel_is_found_by_its_text_and_stays_where_it_is_moved_to() {
        let mut config = CubeClRuntimeConfig::default();
        config.compilation.cache = true;
        CubeClRuntimeConfig::try_set(config);
        let folder = tempfile::tempdir().expect("a folder");
        environment::set_root(folder.path());

        let texts = compilation_store::<u128, KernelCacheKey>("cuda-second-line", FINGERPRINT);
        let namespace = texts.expect("a cache").namespace().expect("one").as_str().to_owned();
        let named =
            |text: u128, content: &str| (format!("{namespace}/{text:032x}"), content.to_owned());
        let ours = ("sm_90a/ff".to_owned(), "ours".to_owned());
        let told = r#"{"entry":"add","shared":48,"io":["ReadOnly","WriteOnly"]}"#;
        let first = named(u128::MAX - 1, &format!("{told}\nfirst"));
        hand_over_an_archive_of(&[
            ours.clone(),
            first.clone(),
            named(2, "{\"entry\":\"sub\",\"shared\":0,\"io\":null}\nsecond"),
            named(3, "{\"entry\":\"no shared memory\",\"io\":null}\nthird"),
            named(4, "{\"entry\":\"odd\",\"shared\":0,\"io\":[\"Odd\"]}\nfourth"),
        ]);

        let key = |id| KernelCacheKey { id, build_id: 7 };
        let io = Some(vec![BufferIOAttr::ReadOnly, BufferIOAttr::WriteOnly]);
        let expected = Entry::new("add".to_owned(), 48, b"first".to_vec(), io);
        assert_eq!(moved(u128::MAX - 1, key(1)), Some(expected.clone()));
        let second = Entry::new("sub".to_owned(), 0, b"second".to_vec(), None);
        assert_eq!(moved(2, key(2)), Some(second));
        for text in [0, 3, 4, 5] {
            assert_eq!(moved(text, key(text)), None, "{text}");
        }

        // The next process finds it where it is now, and another build by its text.
        hand_over_an_archive_of(&[ours, first]);
        let mut codes =
            compilation_store::<KernelCacheKey, Entry>("cuda", FINGERPRINT).expect("a cache");
        assert_eq!(codes.remove(&key(1)).as_ref(), Some(&expected));
        assert_eq!(codes.remove(&KernelCacheKey { id: u128::MAX - 1, build_id: NO_BUILD }), None);
        assert_eq!(moved(u128::MAX - 1, key(9)), Some(expected));
    }
}

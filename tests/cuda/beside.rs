//! Passes beside work on another stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::resnet::resnet;
use super::{
    DenseLayers, Network, Precision, Tensor, assert_same_bits, chain, densenet, grouped, network,
    noise, pass, resolve_device, values,
};
use burn::tensor::DType;
use trainer::model::{ResnetBlock, ResnetForm};

/// Multiplies on the card until it is dropped: each thread has a stream of its own.
struct Noise {
    ended: Arc<AtomicBool>,
    products: Arc<AtomicUsize>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Noise {
    fn begin() -> Self {
        let (ended, products) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (end, count) = (Arc::clone(&ended), Arc::clone(&products));
        let thread = std::thread::spawn(move || {
            let gpu = resolve_device("cuda").expect("a GPU");
            let matrix: Tensor<2> = noise([1024, 1024], 9, &gpu);
            while !end.load(Ordering::Relaxed) {
                let mut product = matrix.clone();
                for _ in 0..(3 + count.load(Ordering::Relaxed) % 5) {
                    product = product.matmul(matrix.clone()).mul_scalar(1e-3);
                }
                assert_eq!(values(product).len(), 1024 * 1024);
                count.fetch_add(1, Ordering::Relaxed);
                // Now close behind one another, now with gaps.
                std::thread::sleep(Duration::from_micros(
                    37 * (count.load(Ordering::Relaxed) % 11) as u64,
                ));
            }
        });
        Self { ended, products, thread: Some(thread) }
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(
            std::thread::panicking() || matches!(ended, Some(Ok(()))),
            "the other stream failed"
        );
    }
}

#[test]
fn a_hundred_passes_beside_another_stream_give_the_same_bits() {
    let gpu = resolve_device("cuda").expect("a GPU");
    let shape = [8, 1, 96, 96];
    let networks: [Network; 3] = [
        network(densenet(32, &[2, 2], 64), shape),
        network(grouped(densenet(32, &[2, 2], 64)), shape),
        network(resnet(ResnetForm::Imagenet, ResnetBlock::Bottleneck, &[1, 1], 64), shape),
    ];
    for network in networks {
        for precision in [Precision::Bf16, Precision::Fp32] {
            let chain = chain(&network.stages(precision, DenseLayers::Share, &[]), &gpu);
            let run = || vec![pass(&chain, shape, &gpu, DType::F32, 1)];
            let alone = run();
            let noise = Noise::begin();
            for round in 0..100 {
                let name = format!("{:?} {precision:?}, round {round}", network.norm());
                assert_same_bits(&name, &alone, &run());
            }
            assert!(noise.products.load(Ordering::Relaxed) > 10, "the other stream did nothing");
        }
    }
}

//! 16 bits and TF32 where stages do not run fused.

use trainer::ops::with_products;

use super::*;

#[test]
fn stages_that_do_not_run_fused_are_as_exact_as_on_the_cpu() {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    let grouped = DensenetArchitecture { norm: Norm::Group, ..architecture(12, &[2, 2], 20) };
    // 12 and 20 are no multiples of 8, which fused stages need.
    let batched = architecture(12, &[2, 2], 20);
    let (shape, plain) = ([4, 1, 64, 48], MemoryConfig::default());
    for architecture in [batched, grouped] {
        architecture.fusible().expect_err("runs on tensors");
        let mut exact = chain(&architecture.stages(1, &plain), &cpu);
        exact.map_parameters(|_, value| value.cast(DType::F64));
        let exact = train(&exact, shape, &cpu, DType::F64);
        for precision in [Precision::Tf32, Precision::Bf16, Precision::Fp16, Precision::Half] {
            let memory = MemoryConfig { precision, ..plain.clone() };
            let run = |device: &Device| {
                let chain = chain(&architecture.stages(1, &memory), device);
                let chain = chain.in_numbers(precision.parameters());
                let numbers = precision.activations();
                with_products(precision.products(), || train(&chain, shape, device, numbers))
            };
            let name = format!("{:?} {precision:?}", architecture.norm);
            let ours = Errors::of(&format!("{name} on the GPU"), &run(&gpu), &exact);
            // TF32 rounds what is multiplied to as many bits as fp16 has, and the CPU has no TF32.
            let (most, all) = match precision {
                Precision::Tf32 => (1e-3, 3e-2),
                _ => {
                    let cpu = Errors::of(&format!("{name} on the CPU"), &run(&cpu), &exact);
                    (1.5 * cpu.features, 1.5 * cpu.gradients)
                }
            };
            assert!(ours.features <= most && ours.gradients <= all, "{name}");
            assert!(ours.features > 1e-6, "{name} was computed in 32 bits");
            let (once, again) = (run(&gpu), run(&gpu));
            assert!(once.gradients == again.gradients, "{name}: two runs differ");
        }
    }
}

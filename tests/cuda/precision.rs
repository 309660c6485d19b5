//! 16 bits and TF32 where stages do not run fused.

use super::*;

#[test]
fn stages_that_do_not_run_fused_are_as_exact_as_on_the_cpu() {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    let grouped = DensenetConfig { norm: Norm::Group, ..densenet(12, &[2, 2], 20) };
    // 12 and 20 are no multiples of 8, which fused stages need.
    let batched = densenet(12, &[2, 2], 20);
    let shape = [4, 1, 64, 48];
    for config in [batched, grouped] {
        let network = network(config.clone(), shape);
        network.fusible().expect_err("runs on tensors");
        let mut exact = chain(&network.stages(Precision::Fp32, DenseLayers::Keep, &[]), &cpu);
        exact.map_parameters(|_, value| value.cast(DType::F64));
        let exact = train(&exact, shape, &cpu, DType::F64);
        for precision in [Precision::Tf32, Precision::Bf16, Precision::Fp16, Precision::Half] {
            let run = |precision: Precision, device: &Device| {
                let chain = chain(&network.stages(precision, DenseLayers::Keep, &[]), device);
                let chain = chain.cast(precision.parameters());
                train(&chain, shape, device, precision.activations())
            };
            let name = format!("{:?} {precision:?}", config.norm);
            let ours = Errors::of(&format!("{name} on the GPU"), &run(precision, &gpu), &exact);
            // The CPU has no TF32, whose numbers have as many bits as fp16's.
            let same_bits = match precision {
                Precision::Tf32 => Precision::Fp16,
                other => other,
            };
            let on_cpu = run(same_bits, &cpu);
            let on_cpu = Errors::of(&format!("{name} on the CPU"), &on_cpu, &exact);
            assert!(ours.features <= 1.5 * on_cpu.features, "{name}");
            assert!(ours.gradients <= 1.5 * on_cpu.gradients, "{name}");
            assert!(ours.features > 1e-6, "{name} was computed in 32 bits");
            let (once, again) = (run(precision, &gpu), run(precision, &gpu));
            assert_same_bits(&name, &once, &again);
        }
    }
}

//! 16 bits and TF32 where stages do not run fused.

use super::*;
use trainer::model::SequentialConfig;

#[test]
fn stages_that_do_not_run_fused_are_as_exact_as_on_the_cpu() {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    let list = "layers = [
        { conv = { channels = 20, kernel = 7, stride = 2, padding = 3 } }, 'batch_norm', 'relu',
        { max_pool = { kernel = 3, stride = 2, padding = 1 } },
        { branches = { join = 'concat', of = [[], [
            { conv = { channels = 48, kernel = 1 } }, 'batch_norm', 'relu',
            { conv = { channels = 12, kernel = 3, padding = 1 } },
        ]] } }, 'batch_norm', 'relu', 'global_pool',
    ]";
    let list: SequentialConfig = toml::from_str(list).expect("reads");
    // Images of 4 channels, for which stems have no fused kernels.
    let grouped = DensenetConfig { norm: Norm::Group, ..densenet(12, &[2, 2], 20) };
    let cases: [(&str, ModelConfig, [usize; 4]); 2] =
        [("a list", list.into(), [4, 1, 64, 48]), ("group norm", grouped.into(), [4, 4, 64, 48])];
    for (case, config, shape) in cases {
        let network = network(config, shape);
        let mut exact = chain(&network.stages(Precision::Fp32, DenseLayers::Keep, &[]), &cpu);
        exact.map_parameters(|_, value| value.cast(DType::F64));
        let exact = train(&exact, shape, &cpu, DType::F64);
        for precision in [Precision::Tf32, Precision::Bf16, Precision::Fp16, Precision::Half] {
            let run = |precision: Precision, device: &Device| {
                let chain = chain(&network.stages(precision, DenseLayers::Keep, &[]), device);
                let chain = chain.cast(precision.parameters());
                train(&chain, shape, device, precision.activations())
            };
            let name = format!("{case} {precision:?}");
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

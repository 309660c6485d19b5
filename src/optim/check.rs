//! Values out of range and settings that contradict each other.

use burn::tensor::f16;

use crate::fault::{Fault, fault};

use super::{
    AdagradConfig, EmaConfig, LionConfig, OneCycleConfig, OptimizerConfig, PesgConfig,
    PlateauConfig, RmspropConfig, ScheduleConfig, SgdConfig, StepConfig,
};

impl OptimizerConfig {
    /// The first fault; keys are below `train.optimizer`.
    pub fn check(&self) -> Result<(), Fault> {
        match self {
            Self::Sgd(config) => check_sgd(config),
            Self::Adam(config) => {
                let table = Table("adam");
                table.adaptive(config.lr, config.betas, config.eps)?;
                table.not_negative("weight_decay", config.weight_decay)
            }
            Self::AdamW(config) => {
                let table = Table("adamw");
                table.adaptive(config.lr, config.betas, config.eps)?;
                table.decoupled_decay(config.weight_decay, config.lr, 1e-3)
            }
            Self::Rmsprop(config) => check_rmsprop(config),
            Self::Adagrad(config) => check_adagrad(config),
            Self::Lion(config) => check_lion(config),
            Self::Pesg(config) => check_pesg(config),
        }
    }

    /// Whether fp16 holds the settings, where the optimizer computes in it.
    ///
    /// # Errors
    ///
    /// An `eps` that is 0 there: zero gradients would be divided by zero.
    pub fn check_half(&self) -> Result<(), Fault> {
        let (table, eps) = match self {
            Self::Adam(config) => (Table("adam"), config.eps),
            Self::AdamW(config) => (Table("adamw"), config.eps),
            Self::Rmsprop(config) => (Table("rmsprop"), config.eps),
            Self::Adagrad(config) => (Table("adagrad"), config.eps),
            Self::Sgd(_) | Self::Lion(_) | Self::Pesg(_) => return Ok(()),
        };
        table.require(
            f16::from_f64(eps) > f16::ZERO,
            "eps",
            || format!("in fp16 an `eps` of {eps:e} is 0, and zero gradients are divided by it"),
            "write a larger number, such as 1e-4, choose the optimizer `sgd`, or keep the weights \
             in 32 bits with `precision = \"fp16\"`",
        )
    }
}

fn check_sgd(config: &SgdConfig) -> Result<(), Fault> {
    let table = Table("sgd");
    table.positive("lr", config.lr)?;
    table.share("momentum", config.momentum)?;
    table.share("dampening", config.dampening)?;
    table.not_negative("weight_decay", config.weight_decay)?;
    table.require(
        config.dampening == 0.0 || config.momentum > 0.0,
        "dampening",
        || "`dampening` acts on the momentum, and `momentum` is 0".to_owned(),
        "set momentum, such as 0.9, or leave dampening out",
    )?;
    table.require(
        !config.nesterov || config.momentum > 0.0,
        "nesterov",
        || "`nesterov` looks ahead along the momentum, and `momentum` is 0".to_owned(),
        "set momentum, such as 0.9, or leave nesterov out",
    )?;
    table.require(
        !config.nesterov || config.dampening == 0.0,
        "nesterov",
        || format!("`nesterov` is not defined with dampening, which is {}", config.dampening),
        "leave dampening or nesterov out",
    )
}

fn check_rmsprop(config: &RmspropConfig) -> Result<(), Fault> {
    let table = Table("rmsprop");
    table.positive("lr", config.lr)?;
    table.share("alpha", config.alpha)?;
    table.eps(config.eps)?;
    table.share("momentum", config.momentum)?;
    table.not_negative("weight_decay", config.weight_decay)
}

fn check_adagrad(config: &AdagradConfig) -> Result<(), Fault> {
    let table = Table("adagrad");
    table.positive("lr", config.lr)?;
    table.not_negative("lr_decay", config.lr_decay)?;
    table.eps(config.eps)?;
    table.not_negative("weight_decay", config.weight_decay)
}

fn check_lion(config: &LionConfig) -> Result<(), Fault> {
    let table = Table("lion");
    table.positive("lr", config.lr)?;
    table.betas(config.betas)?;
    table.decoupled_decay(config.weight_decay, config.lr, 1e-4)
}

fn check_pesg(config: &PesgConfig) -> Result<(), Fault> {
    let table = Table("pesg");
    table.positive("lr", config.lr)?;
    table.share("momentum", config.momentum)?;
    table.positive("clip_value", config.clip_value)?;
    table.not_negative("epoch_decay", config.epoch_decay)?;
    table.require(
        config.stage_steps > 0,
        "stage_steps",
        || "`stage_steps` is 0".to_owned(),
        "write 1 or more, such as the steps of some epochs",
    )?;
    table.not_negative("weight_decay", config.weight_decay)
}

impl ScheduleConfig {
    /// The first fault, for an optimizer's learning rate `lr`; keys are below `train.schedule`.
    pub fn check(&self, lr: f64) -> Result<(), Fault> {
        match self {
            Self::Constant(_) => Ok(()),
            Self::Linear(config) => {
                Table("linear").warmed_up(config.warmup_epochs, config.end_factor)
            }
            Self::Cosine(config) => {
                Table("cosine").warmed_up(config.warmup_epochs, config.end_factor)
            }
            Self::Step(config) => check_step(config),
            Self::OneCycle(config) => check_one_cycle(config),
            Self::Plateau(config) => check_plateau(config, lr),
        }
    }
}

fn check_step(config: &StepConfig) -> Result<(), Fault> {
    let table = Table("step");
    table.require(
        config.every_epochs > 0,
        "every_epochs",
        || "`every_epochs` is 0".to_owned(),
        "write 1 or more",
    )?;
    table.require(
        config.gamma > 0.0 && config.gamma <= 1.0,
        "gamma",
        || {
            format!(
                "`gamma` is {}, which does not lower the rate to something above 0",
                config.gamma
            )
        },
        "write a number above 0 and at most 1, such as 0.1",
    )
}

fn check_one_cycle(config: &OneCycleConfig) -> Result<(), Fault> {
    let table = Table("one_cycle");
    let OneCycleConfig { pct_start, div_factor, final_div_factor } = *config;
    table.require(
        pct_start > 0.0 && pct_start < 1.0,
        "pct_start",
        || format!("`pct_start` is {pct_start}, which is not a share of the steps"),
        "write a number between 0 and 1, both excluded, such as 0.3",
    )?;
    table.require(
        div_factor >= 1.0 && div_factor.is_finite(),
        "div_factor",
        || format!("`div_factor` is {div_factor}, so the first rate is not below the highest"),
        "write 1 or more, such as 25",
    )?;
    table.positive("final_div_factor", final_div_factor)?;
    table.require(
        final_div_factor * div_factor >= 1.0,
        "final_div_factor",
        || {
            format!(
                "`final_div_factor` is {final_div_factor}, so with div_factor {div_factor} the last \
                 rate is above the highest"
            )
        },
        "write a larger number, such as 1e4",
    )
}

fn check_plateau(config: &PlateauConfig, lr: f64) -> Result<(), Fault> {
    let table = Table("plateau");
    table.require(
        config.factor > 0.0 && config.factor < 1.0,
        "factor",
        || {
            format!(
                "`factor` is {}, which does not lower the rate to something above 0",
                config.factor
            )
        },
        "write a number between 0 and 1, both excluded, such as 0.1",
    )?;
    table.not_negative("min_delta", config.min_delta)?;
    table.not_negative("min_lr", config.min_lr)?;
    table.require(
        config.min_lr <= lr,
        "min_lr",
        || format!("`min_lr` is {}, above the optimizer's learning rate of {lr}", config.min_lr),
        "write a number below the optimizer's lr",
    )
}

impl EmaConfig {
    /// The first fault; keys are below `train.ema`.
    pub fn check(&self) -> Result<(), Fault> {
        Table("").share("decay", self.decay)
    }
}

/// Checks `train.clip_norm`; the fault's key is below `train`.
pub fn check_clip_norm(clip_norm: f64) -> Result<(), Fault> {
    Table("").positive("clip_norm", clip_norm)
}

/// The table that the keys are in; empty for the one checked itself.
struct Table(&'static str);

impl Table {
    fn require(
        &self,
        holds: bool,
        key: &str,
        message: impl FnOnce() -> String,
        help: &str,
    ) -> Result<(), Fault> {
        if holds {
            return Ok(());
        }
        let key = if self.0.is_empty() { key.to_owned() } else { format!("{}.{key}", self.0) };
        Err(fault(key, message(), help))
    }

    fn positive(&self, key: &str, value: f64) -> Result<(), Fault> {
        let holds = value > 0.0 && value.is_finite();
        self.require(holds, key, || format!("`{key}` is {value}"), "write a number above 0")
    }

    fn not_negative(&self, key: &str, value: f64) -> Result<(), Fault> {
        let holds = value >= 0.0 && value.is_finite();
        self.require(holds, key, || format!("`{key}` is {value}"), "write 0 or a larger number")
    }

    /// 0 to 1, 1 excluded.
    fn share(&self, key: &str, value: f64) -> Result<(), Fault> {
        let holds = (0.0..1.0).contains(&value);
        self.require(
            holds,
            key,
            || format!("`{key}` is {value}"),
            "write 0 or more and less than 1",
        )
    }

    fn betas(&self, betas: [f64; 2]) -> Result<(), Fault> {
        self.require(
            betas.iter().all(|beta| (0.0..1.0).contains(beta)),
            "betas",
            || format!("`betas` are {betas:?}"),
            "write two numbers, each 0 or more and less than 1, such as [0.9, 0.999]",
        )
    }

    /// Weights are `f32`: a smaller `eps` would be 0 there and divide zero gradients by zero.
    fn eps(&self, eps: f64) -> Result<(), Fault> {
        self.require(
            eps >= f64::from(f32::MIN_POSITIVE) && eps.is_finite(),
            "eps",
            || format!("`eps` is {eps:e}, which is too small to prevent a division by 0"),
            "write a small number above 1e-37, such as 1e-8",
        )
    }

    fn adaptive(&self, lr: f64, betas: [f64; 2], eps: f64) -> Result<(), Fault> {
        self.positive("lr", lr)?;
        self.betas(betas)?;
        self.eps(eps)
    }

    /// Decoupled decay multiplies the weights by `1 − lr · weight_decay` at each step. Where that is
    /// not above 0, at least one of the two is 1 or more, which no such learning rate is: it is at
    /// fault first, and `usual` is one to write.
    fn decoupled_decay(&self, weight_decay: f64, lr: f64, usual: f64) -> Result<(), Fault> {
        self.not_negative("weight_decay", weight_decay)?;
        let holds = lr * weight_decay < 1.0;
        self.require(
            holds || lr < 1.0,
            "lr",
            || {
                format!(
                    "`lr` is {lr}, so with weight_decay {weight_decay} a step leaves nothing of the \
                     weights"
                )
            },
            &format!("learning rates of `{}` lie between 1e-6 and 1e-2: write {usual:e}", self.0),
        )?;
        self.require(
            holds,
            "weight_decay",
            || {
                format!(
                    "`weight_decay` is {weight_decay}, so with lr {lr} a step leaves nothing of the \
                     weights"
                )
            },
            "write a number below 1 / lr, such as 0.01",
        )
    }

    fn warmed_up(&self, warmup: f64, end_factor: f64) -> Result<(), Fault> {
        self.not_negative("warmup_epochs", warmup)?;
        self.require(
            (0.0..=1.0).contains(&end_factor),
            "end_factor",
            || format!("`end_factor` is {end_factor}"),
            "write a share of the optimizer's lr, 0 to 1",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::names_of;

    /// Reads `[name] settings` as TOML and asserts what its check says.
    fn optimizer(settings: &str) -> Result<(), Fault> {
        toml::from_str::<OptimizerConfig>(settings).expect("reads").check()
    }

    fn schedule(settings: &str) -> Result<(), Fault> {
        toml::from_str::<ScheduleConfig>(settings).expect("reads").check(0.1)
    }

    #[test]
    fn all_defaults_are_in_range() {
        for name in names_of::<OptimizerConfig>() {
            assert_eq!(optimizer(&format!("[{name}]")), Ok(()), "{name}");
        }
        for name in names_of::<ScheduleConfig>() {
            assert_eq!(schedule(&format!("[{name}]")), Ok(()), "{name}");
        }
    }

    #[test]
    fn every_optimizer_setting_out_of_range_is_named_with_its_value() {
        for (name, key, value, shown) in [
            ("sgd", "lr", "0.0", "0"),
            ("sgd", "lr", "nan", "NaN"),
            ("sgd", "momentum", "1.0", "1"),
            ("sgd", "momentum", "-0.1", "-0.1"),
            ("sgd", "weight_decay", "-1e-4", "-0.0001"),
            ("adam", "lr", "inf", "inf"),
            ("adam", "betas", "[0.9, 1.0]", "[0.9, 1.0]"),
            ("adam", "betas", "[-0.1, 0.9]", "[-0.1, 0.9]"),
            ("adam", "eps", "0.0", "0e0"),
            ("adam", "eps", "1e-60", "1e-60"),
            ("adam", "weight_decay", "nan", "NaN"),
            ("adamw", "lr", "-1.0", "-1"),
            ("adamw", "lr", "300", "300"),
            ("adamw", "weight_decay", "-0.5", "-0.5"),
            ("adamw", "weight_decay", "1000.0", "1000"),
            ("rmsprop", "lr", "0.0", "0"),
            ("rmsprop", "alpha", "1.0", "1"),
            ("rmsprop", "eps", "-1e-8", "-1e-8"),
            ("rmsprop", "momentum", "2.0", "2"),
            ("rmsprop", "weight_decay", "-2.0", "-2"),
            ("adagrad", "lr", "0.0", "0"),
            ("adagrad", "lr_decay", "-0.5", "-0.5"),
            ("adagrad", "eps", "inf", "inf"),
            ("adagrad", "weight_decay", "-0.5", "-0.5"),
            ("lion", "lr", "0.0", "0"),
            ("lion", "betas", "[1.5, 0.9]", "[1.5, 0.9]"),
            ("lion", "weight_decay", "1e5", "100000"),
            ("pesg", "lr", "0.0", "0"),
            ("pesg", "momentum", "1.0", "1"),
            ("pesg", "clip_value", "0.0", "0"),
            ("pesg", "epoch_decay", "-0.5", "-0.5"),
            ("pesg", "stage_steps", "0", "0"),
            ("pesg", "weight_decay", "nan", "NaN"),
            ("lion", "lr", "3.0\nweight_decay = 1.0", "`lr` is 3"),
        ] {
            let fault = optimizer(&format!("[{name}]\n{key} = {value}")).expect_err("is refused");
            assert_eq!(fault.key, format!("{name}.{key}"));
            assert!(fault.message.contains(shown), "{fault:?}");
        }
    }

    #[test]
    fn sgd_settings_that_contradict_each_other_are_refused() {
        let fault = |settings: &str| optimizer(&format!("[sgd]\n{settings}")).expect_err("refused");
        assert_eq!(fault("nesterov = true").key, "sgd.nesterov");
        assert_eq!(fault("dampening = 0.5").key, "sgd.dampening");
        let both = fault("nesterov = true\nmomentum = 0.9\ndampening = 0.5");
        assert_eq!(both.key, "sgd.nesterov");
        assert!(both.message.contains("dampening, which is 0.5"), "{both:?}");
    }

    #[test]
    fn every_schedule_setting_out_of_range_is_named_with_its_value() {
        for (name, key, value, shown) in [
            ("linear", "warmup_epochs", "-1.0", "-1"),
            ("linear", "end_factor", "1.5", "1.5"),
            ("cosine", "warmup_epochs", "inf", "inf"),
            ("cosine", "end_factor", "-0.1", "-0.1"),
            ("step", "every_epochs", "0", "0"),
            ("step", "gamma", "0.0", "0"),
            ("step", "gamma", "1.1", "1.1"),
            ("one_cycle", "pct_start", "0.0", "0"),
            ("one_cycle", "pct_start", "1.0", "1"),
            ("one_cycle", "div_factor", "0.5", "0.5"),
            ("one_cycle", "final_div_factor", "0.0", "0"),
            ("one_cycle", "final_div_factor", "0.01", "0.01"),
            ("plateau", "factor", "1.0", "1"),
            ("plateau", "factor", "0.0", "0"),
            ("plateau", "min_delta", "-1.0", "-1"),
            ("plateau", "min_lr", "-1.0", "-1"),
            ("plateau", "min_lr", "0.2", "0.2"),
        ] {
            let fault = schedule(&format!("[{name}]\n{key} = {value}")).expect_err("is refused");
            assert_eq!(fault.key, format!("{name}.{key}"));
            assert!(fault.message.contains(shown), "{fault:?}");
        }
    }

    #[test]
    fn averaging_and_clipping_are_checked() {
        assert_eq!(EmaConfig { decay: 0.999 }.check(), Ok(()));
        assert_eq!(EmaConfig { decay: 1.0 }.check().expect_err("refused").key, "decay");
        assert_eq!(check_clip_norm(1.0), Ok(()));
        assert_eq!(check_clip_norm(0.0).expect_err("refused").key, "clip_norm");
        assert!(check_clip_norm(f64::NAN).is_err());
    }
}

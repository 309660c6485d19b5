//! Loops by the widest instructions that a processor has.

/// A function that is compiled for the widest instructions of each kind of processor. All it calls must be inlined.
macro_rules! widest {
    ($(#[$doc:meta])* $visible:vis fn $name:ident<$life:lifetime>($($argument:ident: $type:ty),* $(,)?) $body:block) => {
        widest! {
            $(#[$doc])*
            $visible fn $name<$life>($($argument: $type),*) -> () $body
        }
    };
    ($(#[$doc:meta])* $visible:vis fn $name:ident<$life:lifetime>($($argument:ident: $type:ty),* $(,)?) -> $output:ty $body:block) => {
        $(#[$doc])*
        $visible fn $name<$life>($($argument: $type),*) -> $output {
            struct Work<$life> {
                $($argument: $type),*
            }
            impl<$life> pulp::WithSimd for Work<$life> {
                type Output = $output;
                #[inline(always)]
                fn with_simd<S: pulp::Simd>(self, _: S) -> $output {
                    let Self { $($argument),* } = self;
                    $body
                }
            }
            pulp::Arch::new().dispatch(Work { $($argument),* })
        }
    };
}

pub(crate) use widest;

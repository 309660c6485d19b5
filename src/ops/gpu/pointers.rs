//! What a kernel does with the pointers that it is given, as its text says.

use std::collections::VecDeque;

/// Arrays of a kind in `EACH(X)`, see `kernels/parameters.cuh`.
const EACH: usize = 32;

/// Names that are looked up, at most: a macro may stand for itself.
const MOST: usize = 1000;

/// For each pointer that the entry of `text` is given, in order, whether it only reads there: whether it points to constants. Macros
/// that name pointers are put in. What variants have besides stands behind all others, and may be among these in others too.
pub(super) fn only_read(text: &str, entry: &str) -> Vec<bool> {
    let begin = text.find("extern \"C\"").and_then(|at| Some(at + text[at..].find(entry)?));
    let Some(arguments) = begin.and_then(|at| text[at..].strip_prefix(entry)?.strip_prefix('('))
    else {
        return Vec::new();
    };
    let arguments = &arguments[..closing(arguments)];
    let lines = arguments.lines().filter(|line| !line.starts_with('#'));
    let written = expanded(text, &lines.collect::<Vec<_>>().join(" "));
    let pointers = written.split(',').filter(|argument| argument.contains('*'));
    pointers.map(|pointer| pointer.trim_start().starts_with("const ")).collect()
}

/// Where the bracket closes that is open before `text`.
fn closing(text: &str) -> usize {
    let mut open = 1;
    let closes = text.find(|character| {
        open += i32::from(character == '(') - i32::from(character == ')');
        open == 0
    });
    closes.unwrap_or(text.len())
}

/// `arguments` with the macros of `text` put in, of which the first of a name counts.
fn expanded(text: &str, arguments: &str) -> String {
    let mut rest: VecDeque<String> = VecDeque::from([arguments.to_owned()]);
    let (mut whole, mut put_in) = (String::new(), 0);
    while let Some(part) = rest.pop_front() {
        let is_name = |character: char| character == '_' || character.is_ascii_alphanumeric();
        let Some(begin) = part.find(|character: char| character.is_ascii_uppercase()) else {
            whole += &part;
            continue;
        };
        let (before, name) = part.split_at(begin);
        let (name, behind) = name.split_at(name.find(|c| !is_name(c)).unwrap_or(name.len()));
        let is_whole = !before.ends_with(is_name);
        whole += before;
        if let Some(of) = behind.strip_prefix('(').filter(|_| is_whole && name == "EACH") {
            let (of, behind) = of.split_at(closing(of));
            let each = definition(text, &format!("{of}(i)")).unwrap_or_default();
            rest.push_front(behind[1..].to_owned());
            whole += &each.repeat(EACH);
            continue;
        }
        rest.push_front(behind.to_owned());
        match definition(text, name).filter(|_| is_whole && put_in < MOST) {
            Some(body) => rest.push_front(body),
            None => whole += name,
        }
        put_in += 1;
    }
    whole
}

/// What the first macro of `text` stands for that is defined as `head`.
fn definition(text: &str, head: &str) -> Option<String> {
    let body = text.match_indices("#define ").find_map(|(at, define)| {
        let body = text[at + define.len()..].strip_prefix(head)?;
        body.starts_with(char::is_whitespace).then_some(body)
    })?;
    let mut whole = String::new();
    for line in body.lines() {
        let continued = line.strip_suffix('\\');
        whole += continued.unwrap_or(line);
        if continued.is_none() {
            break;
        }
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_says_which_buffers_it_only_reads() {
        let text = "// adds(x)\nextern \"C\" __global__ void __launch_bounds__(256)\n\
                    adds(const float* __restrict__ x, const E* y,\n     E* __restrict__ out,\n\
                    #if SYNCED\n     const float* table,\n#endif\n     const __grid_constant__ adds_sizes s) { f(x); }";
        assert_eq!(only_read(text, "adds"), [true, true, false, true]);
    }

    /// What a launch without memory would have written is lost, and where nobody says what that is, all that it was given: the
    /// weights of norms were, and no step could be taken any more.
    #[test]
    fn macros_name_pointers_too() {
        let norm = "#if SYNCED\n#define OF_ALL , float *all, const T *table\n#else\n#define OF_ALL\n#endif\n\
                    #define NORM_PARAMETERS   \\\n    float *mean, const float *gamma, \\\n    float *scale OF_ALL\n\
                    extern \"C\" __global__ void\nnorm(const E* x, NORM_PARAMETERS, const __grid_constant__ S s) {}";
        assert_eq!(only_read(norm, "norm"), [true, false, true, false, false, true]);
        let many = "#define ARGUMENTS(i) const float *in##i, float *out##i,\n\
                    extern \"C\" __global__ void\nmany(EACH(ARGUMENTS) const float* decided, const S s) {}";
        let mut expected = [true, false].repeat(EACH);
        expected.push(true);
        assert_eq!(only_read(many, "many"), expected);
    }
}

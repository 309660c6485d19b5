//! Text in lines that are not too long.

use super::columns_of;

/// `text` with lines of at most `columns`, broken at spaces. What goes on in another line is indented
/// by `indent`. A word that is longer than a line stays whole, so that it can be copied.
pub fn wrapped(text: &str, columns: usize, indent: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| wrapped_line(line, columns, indent)).collect();
    lines.join("\n")
}

fn wrapped_line(line: &str, columns: usize, indent: usize) -> String {
    let mut done = String::new();
    let (mut rest, mut room) = (line, columns);
    while columns_of(rest) > room {
        let Some((head, tail)) = broken(rest, room) else { break };
        done.push_str(head);
        done.push('\n');
        done.extend(std::iter::repeat_n(' ', indent));
        (rest, room) = (tail, columns.saturating_sub(indent));
    }
    done + rest
}

/// `line` before and after the last space that leaves the first half within `room`, or else after the
/// first space that there is.
fn broken(line: &str, room: usize) -> Option<(&str, &str)> {
    let begin = line.len() - line.trim_start().len();
    let spaces = line.match_indices(' ').map(|(at, _)| at).filter(|at| *at > begin);
    let (mut fits, mut first) = (None, None);
    for at in spaces {
        first = first.or(Some(at));
        if columns_of(line[..at].trim_end()) <= room {
            fits = Some(at);
        }
    }
    let (head, tail) = line.split_at(fits.or(first)?);
    let tail = tail.trim_start();
    (!tail.is_empty()).then_some((head.trim_end(), tail))
}

/// `fields` with two spaces between them, in as many lines of `columns` as they need. Lines but the
/// first are indented by `indent`.
pub fn side_by_side(fields: &[String], columns: usize, indent: usize) -> String {
    const GAP: usize = 2;
    let mut text = String::new();
    let mut used = 0;
    for field in fields.iter().filter(|field| !field.is_empty()) {
        let width = columns_of(field);
        if used == 0 {
            used = width;
        } else if used.saturating_add(GAP + width) <= columns {
            text.push_str("  ");
            used += GAP + width;
        } else {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', indent));
            used = indent + width;
        }
        text.push_str(field);
    }
    // A single field may be too long.
    wrapped(&text, columns, indent)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str =
        "xray on CPU: 6,956,298 parameters, 1,000 training images\nmemory: all of it";

    #[test]
    fn lines_break_at_spaces_and_go_on_indented() {
        assert_eq!(wrapped(TEXT, 200, 2), TEXT);
        assert_eq!(wrapped(TEXT, usize::MAX, 2), TEXT);
        insta::assert_snapshot!(wrapped(TEXT, 30, 2), @r"
        xray on CPU: 6,956,298
          parameters, 1,000 training
          images
        memory: all of it
        ");
    }

    #[test]
    fn a_long_word_stays_whole() {
        let command = "go on with --set memory.checkpointing=every,and,more or not";
        insta::assert_snapshot!(wrapped(command, 20, 2), @r"
        go on with --set
          memory.checkpointing=every,and,more
          or not
        ");
        assert_eq!(wrapped("  word", 3, 2), "  word");
    }

    #[test]
    fn fields_stay_together_while_they_fit() {
        let fields = ["epoch  3/20", "train loss 0.312", "", "val loss 0.298", "1m03s"];
        let fields = fields.map(str::to_owned);
        let text = |columns| side_by_side(&fields, columns, 4);
        assert_eq!(text(80), "epoch  3/20  train loss 0.312  val loss 0.298  1m03s");
        insta::assert_snapshot!(text(40), @r"
        epoch  3/20  train loss 0.312
            val loss 0.298  1m03s
        ");
        insta::assert_snapshot!(text(18), @r"
        epoch  3/20
            train loss
            0.312
            val loss 0.298
            1m03s
        ");
    }

    proptest! {
        #[test]
        fn no_word_is_lost_and_no_line_too_long(
            text in "([a-zé…]{1,9} {1,3}){0,20}", columns in 14..60_usize, indent in 0..5_usize,
        ) {
            let wrapped = wrapped(&text, columns, indent);
            prop_assert!(wrapped.lines().all(|line| columns_of(line.trim_end()) <= columns));
            prop_assert!(wrapped.split_whitespace().eq(text.split_whitespace()));
        }
    }
}

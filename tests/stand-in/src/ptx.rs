//! Reads of PTX text what a launch must know: its version, its target, and the parameters of each entry.

/// What a PTX text says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ptx {
    /// Major and minor.
    pub(crate) version: (i32, i32),
    /// `sm_75` is 75.
    pub(crate) target: i32,
    pub(crate) entries: Vec<Entry>,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Each parameter's bytes.
    pub(crate) params: Vec<usize>,
}

impl Ptx {
    /// `None` where the text is none of PTX.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = without_comments(text);
        let version = text.split_once(".version")?.1.split_whitespace().next()?;
        let (major, minor) = version.split_once('.')?;
        let target = text.split_once(".target")?.1.trim_start().strip_prefix("sm_")?;
        let digits = target.find(|c: char| !c.is_ascii_digit()).unwrap_or(target.len());
        Some(Self {
            version: (major.parse().ok()?, minor.parse().ok()?),
            target: target.get(..digits)?.parse().ok()?,
            entries: text.split(".entry").skip(1).map(entry).collect::<Option<_>>()?,
        })
    }
}

/// Takes what follows `.entry`: a name and, in parentheses, the parameters; an entry without any may have no parentheses.
fn entry(text: &str) -> Option<Entry> {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$')))?;
    let (name, rest) = text.split_at_checked(end)?;
    let params = match rest.trim_start().strip_prefix('(') {
        None => "",
        Some(list) => list.split_once(')')?.0,
    };
    let params = params.split(',').map(str::trim).filter(|param| !param.is_empty());
    Some(Entry { name: name.to_owned(), params: params.map(bytes).collect::<Option<_>>()? })
}

/// The bytes of `.param .align 8 .b8 x[16]` and the like: of the type, times the length of an array.
fn bytes(param: &str) -> Option<usize> {
    let (declared, array) = match param.split_once('[') {
        None => (param, 1),
        Some((before, length)) => (before, length.split_once(']')?.0.trim().parse().ok()?),
    };
    let size = declared.split_whitespace().find_map(|word| {
        let bits = word.strip_prefix('.')?.strip_prefix(['u', 's', 'b', 'f'])?;
        bits.parse::<usize>().ok()
    })?;
    (size / 8).checked_mul(array)
}

fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        let (before, comment) = rest.split_at(start);
        kept.push_str(before);
        let end = if comment.starts_with("//") { comment.find('\n') } else { comment.find("*/").map(|end| end + 2) };
        rest = end.and_then(|end| comment.get(end..)).unwrap_or("");
        kept.push(' ');
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::{Entry, Ptx};

    #[test]
    fn all_kinds_of_parameters_have_their_bytes() {
        let text = "
            // .version 1.0
            .version 8.0 /* .entry no( */
            .target sm_75, debug
            .address_size 64
            .visible .entry first(
                .param .u64 first_param_0, // the target
                .param .u32 first_param_1,
                .param .f32 first_param_2,
                .param .u64 .ptr .global .align 8 first_param_3,
                .param .align 8 .b8 first_param_4[16]
            )
            { .reg .b32 %r<2>; ret; }
            .visible .entry _Z6second$() { ret; }
            .entry third { ret; }
        ";
        let entry = |name: &str, params: &[usize]| Entry { name: name.to_owned(), params: params.to_vec() };
        let entries = vec![entry("first", &[8, 4, 4, 8, 16]), entry("_Z6second$", &[]), entry("third", &[])];
        assert_eq!(Ptx::parse(text), Some(Ptx { version: (8, 0), target: 75, entries }));
    }

    #[test]
    fn what_is_no_ptx_is_refused() {
        for text in ["", "hello", ".version 8.0", ".version 8.0\n.target sm_75\n.entry f(.param .texref t) {}"] {
            assert_eq!(Ptx::parse(text), None, "{text}");
        }
    }
}

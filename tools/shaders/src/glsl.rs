//! Translates a declaration header, which the host compiles as C++, to GLSL. A header has comments, `inline constexpr int`
//! constants, enums, and structs of plain fields; anything else is an error. Struct members named `out`, a GLSL keyword,
//! become `out_`.

/// The enumerators between the braces, as constants. One without a value is the one before it plus one.
fn translate_enum(body: &str) -> String {
    let mut out = String::new();
    let mut next = "0".to_string();
    for enumerator in body.split(',').map(str::trim).filter(|e| !e.is_empty()) {
        let (name, value) = match enumerator.split_once('=') {
            Some((name, value)) => (name.trim(), value.trim().to_string()),
            None => (enumerator, next),
        };
        out += &format!("const int {name} = {value};\n");
        next = format!("{name} + 1");
    }
    out
}

fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap().trim_end()
}

/// A field of a struct: its type and names. C++ types have other names in GLSL.
fn translate_field(line: &str) -> String {
    let words: Vec<String> = without_comment(line)
        .split_inclusive(|c: char| !c.is_alphanumeric() && c != '_')
        .map(|word| {
            let end = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '_').len();
            let (name, rest) = word.split_at(end);
            let name = match name {
                "out" => "out_",
                "uint32_t" => "uint",
                other => other,
            };
            format!("{name}{rest}")
        })
        .collect();
    words.concat()
}

pub fn translate(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let code = without_comment(line);
        let is_cpp_only = code.is_empty()
            || code == "}"
            || code == "#pragma once"
            || ["#include <", "namespace ", "using "].iter().any(|start| code.starts_with(start));
        if is_cpp_only {
            continue;
        } else if code.starts_with("#include \"") {
            out += &format!("{code}\n");
        } else if let Some(constant) = code.strip_prefix("inline constexpr int ") {
            out += &format!("const int {constant}\n");
        } else if code.starts_with("enum ") {
            let mut whole = code.to_string();
            while !whole.ends_with("};") {
                whole += without_comment(lines.next().ok_or("an enum without end")?);
            }
            let begin = whole.find('{').ok_or("an enum without body")?;
            out += &translate_enum(&whole[begin + 1..whole.len() - 2]);
        } else if code.starts_with("struct ") && code.ends_with('{') {
            out += &format!("{code}\n");
            loop {
                let field = lines.next().ok_or("a struct without end")?;
                out += &format!("{}\n", translate_field(field));
                if without_comment(field) == "};" {
                    break;
                }
            }
        } else {
            return Err(format!("not a declaration that has a GLSL form: {code}"));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::translate;

    #[test]
    fn constants_enums_and_structs_become_glsl() {
        let header = "// Contract.\n#pragma once\n\n#include <cstdint>\n\n#include \"backend/gpu/params/limits.h\"\n\n\
            namespace zinc {\nusing namespace kernel;\n\ninline constexpr int kWarps = 8;  // of 32 threads\n\
            enum Kind : int { kPlain = 3, kNorm };\nenum Id : uint32_t {\n  // first\n  kA,  // a\n\n  kB,\n};\n\
            struct Params {\n  uint64_t x, out;  // out: result\n  uint32_t n_out, sizes[kWarps];\n};\n}  // namespace zinc\n";
        let expected = "#include \"backend/gpu/params/limits.h\"\nconst int kWarps = 8;\nconst int kPlain = 3;\n\
            const int kNorm = kPlain + 1;\nconst int kA = 0;\nconst int kB = kA + 1;\n\
            struct Params {\n  uint64_t x, out_;\n  uint n_out, sizes[kWarps];\n};\n";
        assert_eq!(translate(header).unwrap(), expected);
    }

    #[test]
    fn code_is_refused() {
        assert!(translate("int f() { return 1; }\n").is_err());
        assert!(translate("struct A {\n  int x;\n").is_err());
    }
}

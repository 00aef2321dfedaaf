//! Compiles the Vulkan backend's kernels (src/backend/vulkan/shader/*.comp) to SPIR-V and packs the modules into one
//! file, which is kept in the repository. A kernel that includes FORMAT becomes one module per shader/format/*.glsl.
//!
//! usage: shaders SHADER_FOLDER OUT_FILE
//!
//! The file: "zincspv1", a hash of the sources (u64), the number of modules (u32), then per module its name (32 bytes,
//! filled up with zeros), where its words begin and how many there are (u32 each), then all words. Little endian.
use glslang::{Compiler, CompilerOptions, ShaderInput, ShaderSource, ShaderStage, SourceLanguage, SpirvVersion, Target, VulkanVersion};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const NAME_BYTES: usize = 32;

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the shader folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

/// FNV-1a over names and texts, in the order of names: what tests compare the packed file with.
fn hash_of(folder: &Path) -> u64 {
    let mut names: Vec<(String, PathBuf)> = files_below(folder)
        .into_iter()
        .map(|path| (path.strip_prefix(folder).unwrap().to_string_lossy().into_owned(), path))
        .collect();
    names.sort();
    let mut hash = 0xcbf29ce484222325u64;
    for (name, path) in names {
        for byte in name.bytes().chain([0]).chain(fs::read(path).unwrap()).chain([0]) {
            hash = (hash ^ byte as u64).wrapping_mul(0x100000001b3);
        }
    }
    hash
}

/// The text with every `#include "file"` and `#include FORMAT` replaced, each file once.
fn expanded(folder: &Path, name: &str, format: Option<&str>, seen: &mut BTreeSet<String>) -> String {
    let path = folder.join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut out = String::new();
    for line in text.lines() {
        if let Some(what) = line.strip_prefix("#include ") {
            let included = match what.trim() {
                "FORMAT" => format!("format/{}.glsl", format.expect("a format")),
                quoted => quoted.trim_matches('"').to_string(),
            };
            if seen.insert(included.clone()) {
                out += &expanded(folder, &included, format, seen);
            }
        } else if line.starts_with("#version") {
            continue;
        } else {
            out += line;
            out.push('\n');
        }
    }
    out
}

/// Without names, sources and lines.
fn stripped(words: Vec<u32>) -> Vec<u32> {
    const DEBUG: [u32; 9] = [2, 3, 4, 5, 6, 7, 8, 317, 330];
    let mut out = words[..5].to_vec();
    let mut at = 5;
    while at < words.len() {
        let (op, n) = (words[at] & 0xffff, (words[at] >> 16) as usize);
        if !DEBUG.contains(&op) {
            out.extend(&words[at..at + n]);
        }
        at += n;
    }
    out
}

fn compile(folder: &Path, file: &str, format: Option<&str>) -> Vec<u32> {
    let text = format!("#version 460\n{}", expanded(folder, file, format, &mut BTreeSet::new()));
    let options = CompilerOptions {
        source_language: SourceLanguage::GLSL,
        target: Target::Vulkan { version: VulkanVersion::Vulkan1_3, spirv_version: SpirvVersion::SPIRV1_6 },
        ..Default::default()
    };
    let source = ShaderSource::from(text.clone());
    let input = ShaderInput::new(&source, ShaderStage::Compute, &options, None, None).expect("compiler input");
    let compiler = Compiler::acquire().expect("glslang");
    let shader = compiler.create_shader(input).unwrap_or_else(|e| {
        let numbered: Vec<String> = text.lines().enumerate().map(|(i, l)| format!("{:4} {l}", i + 1)).collect();
        fs::write(std::env::temp_dir().join("shader.txt"), numbered.join("\n")).ok();
        panic!("{file} ({format:?}): {e}")
    });
    stripped(shader.compile().unwrap_or_else(|e| panic!("{file} ({format:?}): {e}")))
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    assert!(arguments.len() == 3, "usage: shaders SHADER_FOLDER OUT_FILE");
    let folder = Path::new(&arguments[1]);
    let names_with = |below: &Path, ending: &str| -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(below)
            .expect("the shader folder")
            .flatten()
            .filter_map(|e| e.file_name().to_string_lossy().strip_suffix(ending).map(str::to_string))
            .collect();
        names.sort();
        names
    };
    let formats = names_with(&folder.join("format"), ".glsl");
    let mut modules = Vec::new();
    for kernel in names_with(folder, ".comp") {
        let file = format!("{kernel}.comp");
        let text = fs::read_to_string(folder.join(&file)).unwrap();
        if !text.contains("#include FORMAT") {
            modules.push((kernel, compile(folder, &file, None)));
            continue;
        }
        let defines = |f: &str, what: &str| {
            let mut seen = BTreeSet::new();
            expanded(folder, &format!("format/{f}.glsl"), None, &mut seen).contains(what)
        };
        for format in &formats {
            let unfit = [
                ("REQUIRES: a rounded format", defines(format, "#define ROUNDED_BLOCK 0")),
                ("REQUIRES: one scale a group", defines(format, "#define HALF_SCALES 1")),
                ("REQUIRES: a scale for 256 inputs", !defines(format, "#define ROUNDED_BLOCK 256")),
            ];
            if unfit.iter().any(|(what, is_unfit)| *is_unfit && text.contains(what)) {
                continue;
            }
            modules.push((format!("{kernel}.{format}"), compile(folder, &file, Some(format))));
        }
    }
    let mut bytes = b"zincspv1".to_vec();
    bytes.extend(hash_of(folder).to_le_bytes());
    bytes.extend((modules.len() as u32).to_le_bytes());
    let mut begin = 0u32;
    for (name, words) in &modules {
        let mut padded = name.clone().into_bytes();
        assert!(padded.len() < NAME_BYTES);
        padded.resize(NAME_BYTES, 0);
        bytes.extend(padded);
        bytes.extend(begin.to_le_bytes());
        bytes.extend((words.len() as u32).to_le_bytes());
        begin += words.len() as u32;
    }
    for (_, words) in &modules {
        bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    }
    fs::write(&arguments[2], &bytes).unwrap();
    println!("{} modules, {} bytes", modules.len(), bytes.len());
}

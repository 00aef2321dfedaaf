//! Compiles the Vulkan backend's kernels (src/backend/vulkan/shader/*.comp) to SPIR-V and packs the modules into one
//! file, which is committed. A kernel that includes FORMAT becomes one module per shader/format/*.glsl, one that includes
//! KV_FORMAT one per shader/kv_format/*.glsl. Parameters and constants are C++ headers (PARAMS), which the host includes
//! too; glsl.rs translates them.
//!
//! usage: shaders SHADER_FOLDER OUT_FILE
//!
//! File layout, little endian: magic "zincspv1", hash of the sources (u64), number of modules (u32), then per module its
//! name (32 bytes, zero-padded), the offset of its first word and the number of words (u32 each), then all words.
use glslang::{Compiler, CompilerOptions, ShaderInput, ShaderSource, ShaderStage, SourceLanguage, SpirvVersion, Target, VulkanVersion};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

mod glsl;

const NAME_BYTES: usize = 32;
/// Folders of the declarations that kernels share with their host, from src/. kernels.cc has the same list.
const PARAMS: [&str; 2] = ["backend/gpu/params", "backend/vulkan/params"];

/// src/, from the shader folder src/backend/vulkan/shader.
fn source_root(shaders: &Path) -> PathBuf {
    shaders.join("../../..")
}

fn list_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("cannot read the shader folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(list_files(&path));
        } else {
            files.push(path);
        }
    }
    files
}

/// FNV-1a over file names and contents, folder by folder, sorted by name. Tests compare it with the hash in the packed
/// file.
fn hash_sources(shaders: &Path) -> u64 {
    let mut hash = 0xcbf29ce484222325u64;
    let declarations = PARAMS.iter().map(|folder| source_root(shaders).join(folder));
    for folder in std::iter::once(shaders.to_path_buf()).chain(declarations) {
        let mut names: Vec<(String, PathBuf)> = list_files(&folder)
            .into_iter()
            .map(|path| (path.strip_prefix(&folder).unwrap().to_string_lossy().into_owned(), path))
            .collect();
        names.sort();
        for (name, path) in names {
            for byte in name.bytes().chain([0]).chain(fs::read(path).unwrap()).chain([0]) {
                hash = (hash ^ byte as u64).wrapping_mul(0x100000001b3);
            }
        }
    }
    hash
}

/// What `#include FORMAT` and `#include KV_FORMAT` stand for: the files of these folders.
const VARIANTS: [(&str, &str); 2] = [("FORMAT", "format"), ("KV_FORMAT", "kv_format")];

/// The folder of the files that a kernel is compiled for, one module each.
fn variant_folder(folder: &Path, name: &str) -> Option<&'static str> {
    let text = fs::read_to_string(folder.join(name)).unwrap_or_default();  // empty: a declaration
    text.lines().filter_map(|line| line.strip_prefix("#include ")).find_map(|target| {
        let variant = VARIANTS.iter().find(|(word, _)| *word == target.trim()).map(|(_, files)| *files);
        variant.or_else(|| variant_folder(folder, target.trim().trim_matches('"')))
    })
}

/// The source with every `#include "file"`, `#include FORMAT` and `#include KV_FORMAT` expanded, each file once. Names are
/// relative to the shader folder; those of declarations begin at src/, and these become GLSL.
fn expand_includes(folder: &Path, name: &str, format: Option<&str>, seen: &mut BTreeSet<String>) -> String {
    let is_declaration = PARAMS.iter().any(|params| name.starts_with(params));
    let path = if is_declaration { source_root(folder).join(name) } else { folder.join(name) };
    let mut text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if is_declaration {
        text = glsl::translate(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    let mut out = String::new();
    for line in text.lines() {
        if let Some(target) = line.strip_prefix("#include ") {
            let included = match VARIANTS.iter().find(|(word, _)| *word == target.trim()) {
                Some((_, files)) => format!("{files}/{}.glsl", format.expect("a format outside of a per-format kernel")),
                None => target.trim().trim_matches('"').to_string(),
            };
            if seen.insert(included.clone()) {
                out += &expand_includes(folder, &included, format, seen);
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

/// Removes debug instructions: names, sources and lines.
fn strip_debug(words: Vec<u32>) -> Vec<u32> {
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
    let text = format!("#version 460\n{}", expand_includes(folder, file, format, &mut BTreeSet::new()));
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
    strip_debug(shader.compile().unwrap_or_else(|e| panic!("{file} ({format:?}): {e}")))
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    assert!(arguments.len() == 3, "usage: shaders SHADER_FOLDER OUT_FILE");
    let folder = Path::new(&arguments[1]);
    let stems_with_suffix = |dir: &Path, suffix: &str| -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .expect("cannot read the shader folder")
            .flatten()
            .filter_map(|e| e.file_name().to_string_lossy().strip_suffix(suffix).map(str::to_string))
            .collect();
        names.sort();
        names
    };
    let mut modules = Vec::new();
    for kernel in stems_with_suffix(folder, ".comp") {
        let file = format!("{kernel}.comp");
        let text = fs::read_to_string(folder.join(&file)).unwrap();
        let Some(variants) = variant_folder(folder, &file) else {
            modules.push((kernel, compile(folder, &file, None)));
            continue;
        };
        let defines = |f: &str, macro_line: &str| {
            let mut seen = BTreeSet::new();
            expand_includes(folder, &format!("{variants}/{f}.glsl"), None, &mut seen).contains(macro_line)
        };
        for format in &stems_with_suffix(&folder.join(variants), ".glsl") {
            let unmet_requirements = [
                ("REQUIRES: a quantized format", defines(format, "#define Q8_BLOCK 0")),
                ("REQUIRES: a float format", !defines(format, "#define Q8_BLOCK 0")),
                ("REQUIRES: one scale per group", defines(format, "#define HALF_GROUP_SCALES 1")),
                ("REQUIRES: a scale for 256 inputs", !defines(format, "#define Q8_BLOCK 256")),
                ("REQUIRES: an f16 KV cache", format != "f16"),
            ];
            if unmet_requirements.iter().any(|(requirement, is_unmet)| *is_unmet && text.contains(requirement)) {
                continue;
            }
            modules.push((format!("{kernel}.{format}"), compile(folder, &file, Some(format))));
        }
    }
    let mut bytes = b"zincspv1".to_vec();
    bytes.extend(hash_sources(folder).to_le_bytes());
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

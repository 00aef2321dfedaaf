// Bundles the page and writes it as C++:  node build.mjs FOLDER OUT
// FOLDER has node_modules and gets dist/; OUT names every file of it with its compressed forms (server/page.h).
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, extname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const here = dirname(fileURLToPath(import.meta.url));
const [folder, out] = process.argv.slice(2);
const { build } = createRequire(join(folder, 'package.json'))('esbuild');
const dist = join(folder, 'dist');
const packages = join(folder, 'node_modules');
const kMaxWireBytes = 500_000;

const kTypes = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.webmanifest': 'application/manifest+json',
  '.woff2': 'font/woff2',
  '.txt': 'text/plain; charset=utf-8',
};

// KaTeX names each font in three formats; every browser that runs this page takes the first.
const onlyWoff2 = {
  name: 'only-woff2',
  setup(bundler) {
    bundler.onLoad({ filter: /katex[^/]*\.css$/ }, ({ path }) => ({
      contents: readFileSync(path, 'utf8').replace(/,\s*url\([^)]*\.(woff|ttf)\)\s*format\([^)]*\)/g, ''),
      loader: 'css',
    }));
  },
};

async function bundle() {
  rmSync(dist, { recursive: true, force: true });
  const result = await build({
    entryPoints: { page: join(here, 'src/main.tsx'), colors: join(here, 'src/colors.ts'), math: join(packages, 'katex/dist/katex.css') },
    bundle: true,
    splitting: true,
    format: 'esm',
    target: 'es2022',
    minify: true,
    metafile: true,
    legalComments: 'none',
    outdir: join(dist, 'assets'),
    publicPath: '/assets',
    entryNames: '[name]-[hash]',
    chunkNames: 'part-[hash]',
    assetNames: '[name]-[hash]',
    loader: { '.woff2': 'file' },
    jsx: 'automatic',
    jsxImportSource: 'preact',
    nodePaths: [packages],
    plugins: [onlyWoff2],
    logLevel: 'warning',
  });
  const made = Object.keys(result.metafile.outputs).map((path) => basename(path));
  const named = (start, end) => `/assets/${made.find((name) => name.startsWith(start) && name.endsWith(end))}`;
  const html = readFileSync(join(here, 'static/index.html'), 'utf8')
    .replace('{{style}}', named('page-', '.css'))
    .replace('{{script}}', named('page-', '.js'))
    .replace('{{math}}', named('math-', '.css'))
    .replace('{{colors}}', named('colors-', '.js'));
  writeFileSync(join(dist, 'index.html'), html);
  for (const name of readdirSync(join(here, 'static'))) {
    if (name !== 'index.html') writeFileSync(join(dist, name), readFileSync(join(here, 'static', name)));
  }
  writeFileSync(join(dist, 'licenses.txt'), licenses());
}

// What the licences of the bundled packages ask for: their text goes with the page.
function licenses() {
  const names = Object.keys(JSON.parse(readFileSync(join(here, 'package.json'), 'utf8')).dependencies);
  names.push('@preact/signals-core');
  return names
    .map((name) => {
      const file = readdirSync(join(packages, name)).find((entry) => /^licen[sc]e/i.test(entry));
      return `${name}\n\n${file ? readFileSync(join(packages, name, file), 'utf8') : ''}\n`;
    })
    .join(`${'-'.repeat(80)}\n\n`);
}

function filesOf(path) {
  return readdirSync(path, { withFileTypes: true })
    .flatMap((entry) => (entry.isDirectory() ? filesOf(join(path, entry.name)) : [join(path, entry.name)]))
    .sort();
}

function packed(path) {
  const bytes = readFileSync(path);
  const url = `/${relative(dist, path)}`;
  const file = {
    url: url === '/index.html' ? '/' : url,
    type: kTypes[extname(path)],
    etag: `"${createHash('sha256').update(bytes).digest('hex').slice(0, 20)}"`,
    isImmutable: url.startsWith('/assets/'),
    forms: {},
  };
  if (!file.type) throw new Error(`${url}: what is its content type?`);
  if (extname(path) === '.woff2') {
    file.forms.plain = bytes;
  } else {
    file.forms.gzip = gzipSync(bytes, { level: 9 });
    file.forms.brotli = brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } });
  }
  return file;
}

// The bytes are taken in by the assembler: a compiler would need minutes for them as numbers.
function writeCpp(files) {
  const place = join(folder, 'packed');
  rmSync(place, { recursive: true, force: true });
  mkdirSync(place, { recursive: true });
  let blobs = '';
  let rows = '';
  let symbols = '';
  files.forEach((file, i) => {
    const view = (form) => {
      const bytes = file.forms[form];
      if (!bytes) return '{}';
      const symbol = `zinc_page_${i}_${form}`;
      const path = join(place, `${i}.${form}-${createHash('sha256').update(bytes).digest('hex').slice(0, 12)}`);
      writeFileSync(path, bytes);
      blobs += `    ".global ${symbol}\\n${symbol}: .incbin \\"${path}\\"\\n"\n`;
      symbols += `extern const char ${symbol}[];\n`;
      return `{${symbol}, ${bytes.length}}`;
    };
    rows += `    {"${file.url}", "${file.type}", "${file.etag.replaceAll('"', '\\"')}", ${file.isImmutable},\n     ` +
      `${view('plain')}, ${view('gzip')}, ${view('brotli')}},\n`;
  });
  writeFileSync(out, `// Generated by web/build.mjs. Do not edit.
#include "server/page.h"

asm(".pushsection .rodata\\n"
${blobs}    ".popsection\\n");
extern "C" {
${symbols}}
namespace zinc {
const PageFile kPageFiles[] = {
${rows}    {nullptr, nullptr, nullptr, false, {}, {}, {}},
};
}  // namespace zinc
`);
}

await bundle();
const files = filesOf(dist).map(packed);
const wire = files.reduce((n, file) => n + Math.min(...Object.values(file.forms).map((form) => form.length)), 0);
const gzipped = files.reduce((n, file) => n + (file.forms.gzip ?? file.forms.plain).length, 0);
if (gzipped > kMaxWireBytes) throw new Error(`the page has ${gzipped} bytes over the wire; at most ${kMaxWireBytes}`);
writeCpp(files);
console.log(`page: ${files.length} files, ${wire} bytes as brotli, ${gzipped} as gzip`);

// Bundles the page and writes it as C++:  node build.mjs FOLDER OUT
// FOLDER contains node_modules; dist/ is written there. OUT is a C++ file with every file of dist/, compressed (server/page.h).
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
const kMaxGzipBytes = 500_000; // without the PDF reader
const kMaxPdfGzipBytes = 530_000; // loaded only when a PDF is attached

const kContentTypes = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.webmanifest': 'application/manifest+json',
  '.woff2': 'font/woff2',
  '.txt': 'text/plain; charset=utf-8',
};

// KaTeX lists each font in three formats; every browser that can run this page uses the first.
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
    entryPoints: {
      page: join(here, 'src/main.tsx'), highlight: join(here, 'src/highlight_worker.ts'), pdf: join(here, 'src/pdf_worker.ts'),
      math: join(packages, 'katex/dist/katex.css'),
    },
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
  const names = Object.keys(result.metafile.outputs).map((path) => basename(path));
  const assetUrl = (start, end) => `/assets/${names.find((name) => name.startsWith(start) && name.endsWith(end))}`;
  const html = readFileSync(join(here, 'static/index.html'), 'utf8')
    .replace('{{style}}', assetUrl('page-', '.css'))
    .replace('{{script}}', assetUrl('page-', '.js'))
    .replace('{{math}}', assetUrl('math-', '.css'))
    .replace('{{highlightWorker}}', assetUrl('highlight-', '.js'))
    .replace('{{pdfWorker}}', assetUrl('pdf-', '.js'));
  writeFileSync(join(dist, 'index.html'), html);
  for (const name of readdirSync(join(here, 'static'))) {
    if (name !== 'index.html') writeFileSync(join(dist, name), readFileSync(join(here, 'static', name)));
  }
  writeFileSync(join(dist, 'licenses.txt'), licenses());
  await bundleServiceWorker(shellOf(result.metafile, assetUrl), html);
}

// The page, its icon, and the files that it loads at once.
function shellOf({ outputs }, assetUrl) {
  const script = assetUrl('page-', '.js');
  const [, { imports }] = Object.entries(outputs).find(([path]) => path.endsWith(basename(script)));
  const parts = imports.filter(({ kind }) => kind === 'import-statement').map(({ path }) => `/assets/${basename(path)}`);
  return ['/', '/icon.svg', '/zinc.webmanifest', assetUrl('page-', '.css'), script, ...parts];
}

async function bundleServiceWorker(shell, html) {
  const version = createHash('sha256').update(html).digest('hex').slice(0, 12);
  await build({
    entryPoints: [join(here, 'src/service_worker.ts')], bundle: true, format: 'iife', target: 'es2022', minify: true, outfile: join(dist, 'sw.js'),
    define: { SHELL: JSON.stringify(shell), VERSION: JSON.stringify(version) }, logLevel: 'warning',
  });
}

// The license texts of the bundled packages, which must be distributed with the page.
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

function compress(path) {
  const bytes = readFileSync(path);
  const url = `/${relative(dist, path)}`;
  const file = {
    url: url === '/index.html' ? '/' : url,
    type: kContentTypes[extname(path)],
    etag: `"${createHash('sha256').update(bytes).digest('hex').slice(0, 20)}"`,
    isImmutable: url.startsWith('/assets/'),
    encodings: {},
  };
  if (!file.type) throw new Error(`${url}: no content type for this file name; add it to kContentTypes`);
  if (extname(path) === '.woff2') {
    file.encodings.plain = bytes;
  } else {
    file.encodings.gzip = gzipSync(bytes, { level: 9 });
    file.encodings.brotli = brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } });
  }
  return file;
}

// The bytes are included by the assembler (.incbin): as array initializers they would take the compiler minutes.
function writeCpp(files) {
  const blobFolder = join(folder, 'packed');
  rmSync(blobFolder, { recursive: true, force: true });
  mkdirSync(blobFolder, { recursive: true });
  let blobs = '';
  let rows = '';
  let symbols = '';
  files.forEach((file, i) => {
    const view = (encoding) => {
      const bytes = file.encodings[encoding];
      if (!bytes) return '{}';
      const symbol = `zinc_page_${i}_${encoding}`;
      const path = join(blobFolder, `${i}.${encoding}-${createHash('sha256').update(bytes).digest('hex').slice(0, 12)}`);
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
const files = filesOf(dist).map(compress);
const brotliBytes = files.reduce((n, file) => n + Math.min(...Object.values(file.encodings).map((bytes) => bytes.length)), 0);
const gzipBytesOf = (list) => list.reduce((n, file) => n + (file.encodings.gzip ?? file.encodings.plain).length, 0);
const isPdfReader = ({ url }) => url.startsWith('/assets/pdf-');
const [gzipBytes, pdfGzipBytes] = [gzipBytesOf(files.filter((file) => !isPdfReader(file))), gzipBytesOf(files.filter(isPdfReader))];
if (gzipBytes > kMaxGzipBytes) throw new Error(`the page has ${gzipBytes} bytes as gzip; the limit is ${kMaxGzipBytes}`);
if (pdfGzipBytes > kMaxPdfGzipBytes) throw new Error(`the PDF reader has ${pdfGzipBytes} bytes as gzip; the limit is ${kMaxPdfGzipBytes}`);
writeCpp(files);
console.log(`page: ${files.length} files, ${brotliBytes} bytes as brotli, ${gzipBytes} as gzip and ${pdfGzipBytes} for PDF files`);

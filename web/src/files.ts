// Files as attachments: text files as they are, PDF files by their text. Everything else is refused with the reason.
import { addAttachments, draftKey } from './draft';
import type { PdfResult } from './pdf_worker';
import { showToast } from './state';
import type { Attachment } from './types';
import { bytes } from './ui/format';
import { startPdfWorker } from './workers';

const kMaxTextBytes = 8 << 20;
const kMaxPdfBytes = 64 << 20;

function readPdf(data: ArrayBuffer): Promise<PdfResult> {
  return new Promise((resolve) => {
    const worker = startPdfWorker();
    const finish = (result: PdfResult) => {
      worker.terminate();
      resolve(result);
    };
    // pdf.js also announces itself, in its own format.
    worker.onmessage = ({ data: result }: MessageEvent<object>) => ('text' in result || 'error' in result) && finish(result as PdfResult);
    worker.onerror = () => finish({ error: 'the PDF reader could not be loaded' });
    worker.postMessage(data, [data]);
  });
}

async function textOfPdf(name: string, data: ArrayBuffer): Promise<string> {
  showToast(`Reading ${name}…`);
  const result = await readPdf(data);
  if ('error' in result) {
    throw new Error(result.error === 'PasswordException' ? `${name} is protected by a password.` : `${name} could not be read: it is damaged or not a PDF.`);
  }
  if (!result.text) throw new Error(`${name} contains no text; its pages are probably scanned images.`);
  return result.text;
}

const isPdf = (data: ArrayBuffer) => new TextDecoder('latin1').decode(data.slice(0, 1024)).includes('%PDF-');

// Throws an Error with a sentence for the user.
async function textOf(file: File): Promise<string> {
  if (/^(image|audio|video)\//.test(file.type)) {
    const kind = file.type.startsWith('image/') ? 'images' : file.type.startsWith('audio/') ? 'sound' : 'videos';
    throw new Error(`${file.name} was not attached: zinc cannot read ${kind}.`);
  }
  const isNamedPdf = file.type === 'application/pdf' || /\.pdf$/i.test(file.name);
  const limit = isNamedPdf ? kMaxPdfBytes : kMaxTextBytes;
  if (file.size > limit) throw new Error(`${file.name} is too large (${bytes(file.size)}); the limit is ${bytes(limit)}.`);
  const data = await file.arrayBuffer();
  if (isNamedPdf || isPdf(data)) return textOfPdf(file.name, data);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(data);
  } catch {
    throw new Error(`${file.name} is not a text or PDF file; only these can be attached.`);
  }
}

export async function attachFiles(files: File[]): Promise<void> {
  const key = draftKey(); // reading the files is asynchronous
  const out: Attachment[] = [];
  for (const file of files) {
    try {
      out.push({ name: file.name, text: await textOf(file) });
    } catch (error) {
      showToast(error instanceof Error ? error.message : String(error));
    }
  }
  if (out.length > 0) addAttachments(out, key);
}

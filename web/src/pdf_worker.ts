// The text of a PDF, in a web worker that is loaded when the first PDF is attached. The document stays in the worker; nothing
// is fetched.
import { getDocument } from 'pdfjs-dist';
import { WorkerMessageHandler } from 'pdfjs-dist/build/pdf.worker.mjs';

export type PdfResult = { text: string; nPages: number } | { error: string };

// pdf.js then runs its parser in this worker instead of starting another one.
Object.assign(globalThis, { pdfjsWorker: { WorkerMessageHandler } });

interface TextItem {
  str?: string; // absent: marked content, not text
  hasEOL?: boolean;
}

const textOfPage = (items: TextItem[]) => items.map(({ str = '', hasEOL }) => str + (hasEOL ? '\n' : '')).join('');

async function read(data: ArrayBuffer): Promise<PdfResult> {
  const task = getDocument({ data, isEvalSupported: false, disableFontFace: true, useSystemFonts: true, useWorkerFetch: false, verbosity: 0 });
  try {
    const pdf = await task.promise;
    const pages: string[] = [];
    for (let i = 1; i <= pdf.numPages; ++i) {
      const page = await pdf.getPage(i);
      pages.push(textOfPage((await page.getTextContent()).items as TextItem[]).trim());
      page.cleanup();
    }
    return { text: pages.filter(Boolean).join('\n\n'), nPages: pdf.numPages };
  } catch (error) {
    return { error: error instanceof Error ? error.name : String(error) };
  } finally {
    await task.destroy();
  }
}

addEventListener('message', ({ data }: MessageEvent<ArrayBuffer>) => void read(data).then((result) => postMessage(result)));

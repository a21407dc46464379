/** The latency report: the page that `spec-complete stats --html` makes, in a tab. */

import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as vscode from 'vscode';
import { ask } from './server';

let panel: vscode.WebviewPanel | undefined;

/** The page where there is no report: why not. */
function withoutFigures(reason: string): string {
  const text = reason.replace(/^spec-complete: /, '').replace(/&/g, '&amp;').replace(/</g, '&lt;');
  return `<!doctype html><html lang="en"><body><h1>Completion latency</h1><p>No figures: ${text}</p></body></html>`;
}

async function page(program: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'spec-complete-'));
  try {
    const file = join(folder, 'report.html');
    await ask(program, ['stats', '--html', file]);
    return await readFile(file, 'utf8');
  } catch (error) {
    return withoutFigures(error instanceof Error ? error.message : String(error)); // nothing measured yet, mostly
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Opens the report, or brings it to the front with fresh figures. */
export async function showReport(program: string): Promise<void> {
  const html = await page(program);
  if (!panel) {
    // the page has no script and its own policy keeps it off the network
    panel = vscode.window.createWebviewPanel('specComplete.report', 'Latency Report', vscode.ViewColumn.Active, {
      enableScripts: false,
      localResourceRoots: [],
    });
    panel.onDidDispose(() => (panel = undefined));
  }
  panel.webview.html = html;
  panel.reveal();
}

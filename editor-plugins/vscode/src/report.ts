/** The latency report: the page that `spec-complete stats --html` makes, in a tab. */

import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as vscode from 'vscode';
import { ask } from './server';

let panel: vscode.WebviewPanel | undefined;

async function page(program: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'spec-complete-'));
  try {
    const file = join(folder, 'report.html');
    await ask(program, ['stats', '--html', file]);
    return await readFile(file, 'utf8');
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

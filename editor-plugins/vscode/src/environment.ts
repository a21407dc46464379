/** Makes a Python environment with the server in it, where the user has none. */

import { spawn } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import * as vscode from 'vscode';
import { ask, ownEnvironment, ownProgram } from './server';

const PYTHONS = process.platform === 'win32' ? ['py', 'python'] : ['python3', 'python'];
const NEEDED = [3, 10] as const;

async function findPython(): Promise<string> {
  for (const name of PYTHONS) {
    try {
      const version = await ask(name, ['-c', 'import sys; print(*sys.version_info[:2])']);
      const [major = 0, minor = 0] = version.trim().split(' ').map(Number);
      if (major > NEEDED[0] || (major === NEEDED[0] && minor >= NEEDED[1])) {
        return name;
      }
    } catch {
      // the next name
    }
  }
  throw new Error(`Python ${NEEDED.join('.')} or newer was not found on PATH.`);
}

/** Runs a program to its end, telling each line; rejects when it fails or the user cancels. */
function run(
  program: string,
  args: readonly string[],
  tell: (line: string) => void,
  token: vscode.CancellationToken,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args);
    const cancelled = token.onCancellationRequested(() => child.kill());
    let last = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        for (const line of text.split(/[\r\n]+/).filter(Boolean)) {
          last = line;
          tell(line);
        }
      });
    }
    child.on('error', reject);
    child.on('close', (code) => {
      cancelled.dispose();
      if (token.isCancellationRequested) {
        reject(new vscode.CancellationError());
      } else if (code !== 0) {
        reject(new Error(last || `${program} ended with code ${code}`));
      } else {
        resolve();
      }
    });
  });
}

/** Creates the environment with progress; the server's program, or undefined when it was cancelled or failed. */
export async function createEnvironment(
  storage: vscode.Uri,
  log: vscode.LogOutputChannel,
): Promise<string | undefined> {
  const folder = ownEnvironment(storage);
  const options = { location: vscode.ProgressLocation.Notification, cancellable: true, title: 'Spec Complete' };
  try {
    await vscode.window.withProgress(options, async (progress, token) => {
      const tell = (line: string): void => {
        log.info(line);
        progress.report({ message: line.slice(0, 100) });
      };
      progress.report({ message: 'making a Python environment…' });
      await mkdir(dirname(folder), { recursive: true });
      await run(await findPython(), ['-m', 'venv', folder], tell, token);
      const pip = ownProgram(storage).replace(/spec-complete(\.exe)?$/, 'python$1');
      await run(pip, ['-m', 'pip', 'install', '--upgrade', 'spec-complete'], tell, token);
    });
    return ownProgram(storage);
  } catch (error) {
    if (!(error instanceof vscode.CancellationError)) {
      const reason = error instanceof Error ? error.message : String(error);
      log.error(`installing the server failed: ${reason}`);
      void vscode.window.showErrorMessage(`Spec Complete: the server could not be installed. ${reason}`);
    }
    return undefined;
  }
}

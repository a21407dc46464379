/** Where the server is: the setting, then PATH, then the environment that this extension made. */

import { execFile } from 'node:child_process';
import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import * as vscode from 'vscode';

export const PROGRAM = process.platform === 'win32' ? 'spec-complete.exe' : 'spec-complete';
const BIN = process.platform === 'win32' ? 'Scripts' : 'bin';

/** The command line that the user set, without which the server is looked for. */
function configured(): string[] {
  return vscode.workspace.getConfiguration('specComplete').get<string[]>('server.command', []);
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The program of our own environment, whether or not it exists. */
export function ownProgram(storage: vscode.Uri): string {
  return join(ownEnvironment(storage), BIN, PROGRAM);
}

/** The folder of our own environment. */
export function ownEnvironment(storage: vscode.Uri): string {
  return join(storage.fsPath, 'server');
}

/** The command that starts the server, without the arguments; undefined when there is none. */
export async function findProgram(storage: vscode.Uri): Promise<string | undefined> {
  const [chosen] = configured();
  if (chosen) {
    return chosen;
  }
  const folders = (process.env['PATH'] ?? '').split(delimiter).filter(Boolean);
  for (const path of [...folders.map((folder) => join(folder, PROGRAM)), ownProgram(storage)]) {
    if (await isExecutable(path)) {
      return path;
    }
  }
  return undefined;
}

/** The arguments that make the program a language server. */
export function serveArguments(): string[] {
  const [, ...chosen] = configured();
  return chosen.length > 0 ? chosen : ['serve'];
}

/** Runs the program once and gives what it printed; throws with what it said on stderr. */
export function ask(program: string, args: readonly string[], timeoutMs = 60_000): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(program, args, { timeout: timeoutMs, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
      if (error && stdout.trim() === '') {
        reject(new Error(stderr.trim() || error.message));
      } else {
        resolve(stdout);
      }
    });
  });
}

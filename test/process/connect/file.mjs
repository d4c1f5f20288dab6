import { file } from '../../../dist/engines/file/index.cjs'

/** The engine of this process on the file of RINGFENCE_FILE. */
export async function connect() {
  return file(process.env.RINGFENCE_FILE, JSON.parse(process.env.RINGFENCE_FILE_OPTIONS ?? '{}'))
}

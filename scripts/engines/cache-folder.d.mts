export function engineFolder(env?: NodeJS.ProcessEnv): string

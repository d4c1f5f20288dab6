#!/usr/bin/env node
import { start } from './start.ts'

// Not awaited: a bundler keeps a module that awaits apart from all others, and each file costs time at the start.
void start()

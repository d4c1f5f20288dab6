import { fileTarget } from '../../schedules/targets/file.ts'
import { playSchedules } from './schedules.ts'

playSchedules(fileTarget)

import { postgresAdvisoryTarget } from '../../schedules/targets/postgres-advisory.ts'
import { playSchedules } from './schedules.ts'

playSchedules(postgresAdvisoryTarget)

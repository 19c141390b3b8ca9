/* Lockstep: trains a model on every device there is, from one unchanged program. Each header is the
 * manual of its room. */
#ifndef LOCKSTEP_H
#define LOCKSTEP_H

#include <lockstep/base.h>
#include <lockstep/comm.h>
#include <lockstep/dataset.h>
#include <lockstep/graph.h>
#include <lockstep/metric.h>
#include <lockstep/nn.h>
#include <lockstep/op.h>
#include <lockstep/optimizer.h>
#include <lockstep/run.h>
#include <lockstep/space.h>
#include <lockstep/tokenizer.h>
#include <lockstep/trainer.h>
#include <lockstep/world.h>

#endif

/* Runs a network that `autotune run configs/resnet50.yaml` compiled, from C alone.
 *
 *   cc -std=c11 -O2 -Iruns/resnet50/network examples/resnet50.c runs/resnet50/network/resnet50.so \
 *      -Wl,-rpath,$PWD/runs/resnet50/network -o resnet50
 *   ./resnet50 runs/resnet50/network/resnet50.weights [image.raw]
 *
 * The image is 3 x 224 x 224 floats, channels first; without one it is a gradient.
 */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "resnet50.h"

enum { IMAGE = 3 * 224 * 224, CLASSES = 1000, THREADS = 2, RUNS = 20 };

int main(int count, char **arguments) {
  static float image[IMAGE], probabilities[CLASSES];
  if (count < 2) {
    fprintf(stderr, "usage: %s WEIGHTS [IMAGE]\n", arguments[0]);
    return 2;
  }
  for (int i = 0; i < IMAGE; i++) image[i] = (float)(i % 224) / 224;
  if (count > 2) {
    FILE *file = fopen(arguments[2], "rb");
    if (!file || fread(image, sizeof(float), IMAGE, file) != IMAGE) {
      fprintf(stderr, "%s must hold %d floats\n", arguments[2], IMAGE);
      return 2;
    }
    fclose(file);
  }
  resnet50_network network;
  if (resnet50_open(&network, arguments[1], THREADS)) {
    fprintf(stderr, "%s must be the weights of this network\n", arguments[1]);
    return 1;
  }
  struct timespec start, end;
  resnet50_infer(&network, image, probabilities);
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int run = 0; run < RUNS; run++) resnet50_infer(&network, image, probabilities);
  clock_gettime(CLOCK_MONOTONIC, &end);
  int best = 0;
  for (int i = 1; i < CLASSES; i++)
    if (probabilities[i] > probabilities[best]) best = i;
  double seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
  printf("class %d with probability %.3f, %.2f ms an inference\n", best, probabilities[best], seconds / RUNS * 1e3);
  resnet50_close(&network);
  return 0;
}
